# syntax=docker/dockerfile:1
# Two stages from one base: the first builds wheels and installs them, the second receives the result.
# To pin the base by content as well: --build-arg PYTHON_DIGEST=@sha256:...
ARG PYTHON_TAG=3.13.16-slim-trixie
ARG PYTHON_DIGEST=

FROM python:${PYTHON_TAG}${PYTHON_DIGEST} AS build
# For the part in C. Debian keeps only the latest version of its release, so an exact one would soon be gone.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build/source
COPY deploy/build.lock deploy/requirements.lock deploy/decode.lock ./
# decode.lock, with EXTRAS=[redis,otel,decode], for what steers a vLLM: masks, rollback, structured output.
ARG LOCK=requirements.lock
# Only wheels with the hashes of the locks are taken: a dependency that would have to be compiled, or is another file than
# the one that was locked, stops the build here, by name.
RUN python -m pip install --no-cache-dir --disable-pip-version-check --only-binary=:all: --require-hashes -r build.lock \
    && python -m pip wheel --no-cache-dir --disable-pip-version-check --only-binary=:all: --no-deps --require-hashes \
       --wheel-dir /build/wheels -r "${LOCK}"
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY gateway gateway
RUN PORTCULLIS_NATIVE=1 python -m pip wheel --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation \
    --no-index --wheel-dir /build/wheels .
# The optional parts, which the lock has to have; nothing can be added to the image later.
ARG EXTRAS=[redis,otel]
# pip sets the environment up and stays outside it.
RUN python -m venv --without-pip /opt/portcullis \
    && python -m pip --python /opt/portcullis/bin/python install --no-index --find-links=/build/wheels \
       --no-cache-dir --disable-pip-version-check --compile "portcullis-gateway${EXTRAS}"

FROM python:${PYTHON_TAG}${PYTHON_DIGEST}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Portcullis" \
      org.opencontainers.image.description="Streaming guard gateway for the output of language models" \
      org.opencontainers.image.licenses="Apache-2.0 AND MIT" \
      org.opencontainers.image.source="https://github.com/portcullis-gateway/portcullis" \
      org.opencontainers.image.documentation="https://github.com/portcullis-gateway/portcullis/tree/main/docs" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Nothing is installed into a running gateway, so what installs goes as well.
RUN python -m pip uninstall --yes pip setuptools wheel
COPY --from=build /opt/portcullis /opt/portcullis
# The command `portcullis health` without the time that importing the package takes.
COPY gateway/serving/health.py /opt/portcullis/health.py
COPY deploy/image/portcullis.yaml /etc/portcullis/portcullis.yaml
# The file system may be read-only: bytecode is there already, and what several workers share lies in TMPDIR.
ENV PATH=/opt/portcullis/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TMPDIR=/tmp \
    PORTCULLIS_ADDRESS_FILE=/tmp/portcullis.address
# A number and no name, so that Kubernetes can see that it is not root.
USER 10001:10001
WORKDIR /tmp
EXPOSE 8080 9090
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "/opt/portcullis/health.py"]
ENTRYPOINT ["portcullis"]
# A configuration for the loopback would be reached by nobody outside.
CMD ["serve", "--config", "/etc/portcullis/portcullis.yaml", "--host", "0.0.0.0"]
