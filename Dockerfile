# Two images for docker-compose.yml: the broker, and Spark with what loading a topic needs.

FROM python:3.13-slim AS kafkalite
WORKDIR /app
COPY . .
RUN pip install --no-cache-dir . \
    && useradd --system --uid 1000 kafkalite \
    && install -d -o kafkalite /data
USER kafkalite
VOLUME /data
EXPOSE 9092
# settings come from KAFKA_* of the environment, as in Apache Kafka's image
ENV KAFKA_LISTENERS=PLAINTEXT://:9092 KAFKA_LOG_DIRS=/data
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
