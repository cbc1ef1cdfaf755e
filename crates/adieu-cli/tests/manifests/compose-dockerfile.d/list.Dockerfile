# syntax=docker/dockerfile:1
FROM rust:1 AS build
RUN <<EOF
cargo build --release
EOF
CMD cargo run
FROM debian:12-slim
COPY --from=build /src/target/release/orders /app/orders
ENV RUST_LOG=info \
    # where it listens
    PORT=8080
USER 65532
ENTRYPOINT ["/app/orders"]
CMD ["--port", "8080"]
