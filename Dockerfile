# Two images: `docker build --target jobmanager .` and `docker build --target taskexecutor .`
# A jobmanager needs no Java, unless resourcemanager.mode is active: then it starts TaskExecutors, and needs their image.
ARG PYTHON_VERSION=3.12
# Optional packages, such as [kubernetes] for jobmanagers that start pods.
ARG EXTRAS=

FROM python:${PYTHON_VERSION}-slim-trixie AS wheel
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM python:${PYTHON_VERSION}-slim-trixie AS jobmanager
ARG EXTRAS
COPY --from=wheel /wheel /tmp/wheel
COPY requirements.lock /tmp/requirements.lock
# The lock is a constraint here: the image gets the packages that tailrace needs, at the pinned versions.
RUN pip install --no-cache-dir --constraint /tmp/requirements.lock "$(ls /tmp/wheel/*.whl)${EXTRAS}" && \
    rm -r /tmp/wheel /tmp/requirements.lock && \
    useradd --uid 1000 --home-dir /home/tailrace --create-home tailrace && \
    install --directory --owner tailrace /home/tailrace/cache /home/tailrace/cluster /storage
ENV TAILRACE_CACHE_DIR=/home/tailrace/cache \
    TAILRACE_HOME=/home/tailrace/cluster
USER 1000
WORKDIR /home/tailrace
ENTRYPOINT ["tailrace"]
CMD ["jobmanager"]

FROM jobmanager AS taskexecutor
USER 0
RUN apt-get update && \
    apt-get install --yes --no-install-recommends openjdk-21-jre-headless && \
    rm -rf /var/lib/apt/lists/*
USER 1000
# The jars of Spark's Kafka source, and an archive of the classes that Spark loads, so that a TaskExecutor starts fast.
RUN python -m tailrace.pipelines.runtime.class_archive
CMD ["taskexecutor"]
