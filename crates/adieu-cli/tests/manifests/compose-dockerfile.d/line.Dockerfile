FROM rust:1 AS build
RUN cargo build --release
FROM debian:12-slim
COPY --from=build /src/target/release/orders /app/orders
EXPOSE 8080
CMD /app/migrate; /app/orders --port 8080
