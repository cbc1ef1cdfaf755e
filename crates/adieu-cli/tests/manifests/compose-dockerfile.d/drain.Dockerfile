FROM debian:12-slim
ENV ADIEU__DRAIN_TIMEOUT=90s
ENTRYPOINT ["/app/orders"]
