FROM debian:12-slim AS base
STOPSIGNAL SIGQUIT
FROM base
ENTRYPOINT ["/app/orders"]
