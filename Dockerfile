# Two images for docker-compose.yml: the broker, and Spark with what loading a topic needs.

# Debian's slim image and not Alpine: lz4 has no wheel for musl, and would bring a compiler into the build.
FROM python:3.13-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends binutils
WORKDIR /source
COPY pyproject.toml README.md ./
COPY kafkalite kafkalite
# an environment of its own, without pip; the tests of its packages stay behind, and the symbols for their debuggers: 70 MB
# instead of 128 (NumPy's libraries have none, and would not load after a second strip)
RUN python -m venv --without-pip /opt/kafkalite \
    && pip --python /opt/kafkalite/bin/python install --no-cache-dir . \
    && find /opt/kafkalite -type d -name tests -prune -exec rm -r {} + \
    && find /opt/kafkalite -name '*.pyi' -delete \
    && find /opt/kafkalite -regex '.*/\(lz4\|uvloop\|zstandard\)/.*\.so' -exec strip --strip-unneeded {} +

FROM python:3.13-slim AS kafkalite
RUN useradd --system --uid 1000 --no-create-home kafkalite && install -d -o kafkalite /data
COPY --from=build /opt/kafkalite /opt/kafkalite
ENV PATH=/opt/kafkalite/bin:$PATH
USER kafkalite
VOLUME /data
EXPOSE 9092
# settings come from KAFKA_* of the environment, as in Apache Kafka's image
ENV KAFKA_LISTENERS=PLAINTEXT://:9092 KAFKA_LOG_DIRS=/data
HEALTHCHECK --interval=5s --timeout=10s --start-period=30s --retries=3 CMD ["kafkalite", "health"]
STOPSIGNAL SIGTERM
CMD ["kafkalite", "serve"]

FROM apache/spark:4.0.0-scala2.13-java17-ubuntu AS spark
USER root
# that image brings Python 3.10, and kafkalite wants 3.11 or newer
COPY --from=ghcr.io/astral-sh/uv:0.8.0 /uv /usr/local/bin/uv
ENV UV_PYTHON_INSTALL_DIR=/opt/python UV_NO_CACHE=1
RUN uv venv --python 3.12 /opt/venv \
    && uv pip install --python /opt/venv/bin/python numpy pyarrow crc32c lz4 zstandard python-snappy
ENV PYSPARK_PYTHON=/opt/venv/bin/python PYTHONPATH=/app TOPIC=orders
USER spark
# the tree itself is mounted there
WORKDIR /app
CMD ["/bin/sh", "-c", "exec /opt/spark/bin/spark-submit spark_jobs/load.py --data-dir /data --topic \"$TOPIC\""]
