# Images that run the programs of this package (docs/containers.md):
#   docker build --target=cpu -t estimator-models:cpu .     TensorFlow for CPUs (the default)
#   docker build --target=gpu -t estimator-models:gpu .     TensorFlow with the libraries of CUDA
#   docker build --target=dev -t estimator-models:dev .     everything that `make test` needs
# Needs BuildKit (Docker 23 or newer), Podman or Buildah.

# Debian's archive keeps only the newest version of a package: a pinned one would break the build.
# hadolint global ignore=DL3008

# Debian 12 is the last release whose Python (3.11) has wheels of TensorFlow 2.15.
ARG BASE=docker.io/library/debian:bookworm-20261005-slim@sha256:7c7b2c966bc9ee8cedfeef67e0e279108992c77681fa595db4a9d65c06ccc587

FROM ${BASE} AS python
# TensorFlow's gs:// client reads the CA certificates of the system.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3.11 tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/debconf/*-old /var/log/*.log /var/log/apt

FROM python AS pip
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3.11-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/python
COPY tools/setup.sh tools/image/trim.sh tools/

FROM python AS runtime
# USER is a number for Kubernetes' runAsNonRoot; this gives it a name. Any other uid works, too.
RUN useradd --uid 1000 --user-group --no-create-home --home-dir /tmp models
# HOME: programs run as any uid on a read-only root file system and write only /tmp and volumes.
ENV HOME=/tmp \
    LANG=C.UTF-8 \
    PATH=/opt/python/.venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    VIRTUAL_ENV=/opt/python/.venv
COPY --chmod=755 tools/image/entrypoint.sh /usr/local/bin/entrypoint
WORKDIR /app
# As PID 1, a process without a handler ignores SIGTERM: tini forwards it and reaps child processes.
ENTRYPOINT ["tini", "-s", "--", "entrypoint"]
CMD ["run_cpu.py", "--help"]
LABEL org.opencontainers.image.title="estimator-models" \
      org.opencontainers.image.description="Models in the TPUEstimator style: one inference function, two Estimators" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.base.name="docker.io/library/debian:bookworm-20261005-slim"

# The secrets are optional: a pip.conf for a private index, and CA certificates that it names.
FROM pip AS packages-cpu
COPY requirements/cpu.txt requirements/cloud.txt requirements/text.txt requirements/
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_certificates \
    --mount=type=cache,target=/root/.cache/pip \
    sh tools/setup.sh cpu cloud text && sh tools/trim.sh

FROM python AS code
WORKDIR /app
COPY estimator_models.py prepare_data.py run_check.py run_cpu.py run_tpu.py ./
COPY common common
COPY configs configs
COPY engine engine
COPY input_fns input_fns
COPY models models
COPY tools tools
COPY tpu tpu
# Readable by every uid whatever the umask of the checkout. A checked hash instead of a time stamp:
# the layer depends on the contents only, and a module that is mounted over another one is compiled.
RUN chmod -R u=rwX,go=rX . \
    && python3.11 -m compileall -q --invalidation-mode checked-hash .

FROM runtime AS cpu
COPY --from=packages-cpu /opt/python /opt/python
COPY --from=code /app /app
USER 1000:1000
ARG REVISION=unknown
LABEL org.opencontainers.image.revision="${REVISION}"

FROM pip AS packages-gpu
COPY requirements/gpu.txt requirements/text.txt requirements/
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_certificates \
    --mount=type=cache,target=/root/.cache/pip \
    sh tools/setup.sh gpu text && sh tools/trim.sh

FROM runtime AS gpu
COPY --from=packages-gpu /opt/python /opt/python
COPY --from=code /app /app
# Read by the NVIDIA container toolkit, which mounts the driver.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000:1000
ARG REVISION=unknown
LABEL org.opencontainers.image.revision="${REVISION}"

FROM pip AS packages-dev
COPY requirements requirements
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_certificates \
    --mount=type=cache,target=/root/.cache/pip \
    sh tools/setup.sh tensorflow dev check text_ops serving

FROM runtime AS dev
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev make \
    && rm -rf /var/lib/apt/lists/*
COPY --from=packages-dev /opt/python /opt/python
COPY --chown=1000:1000 . .
# `make` looks for the environment in .venv.
RUN ln -s /opt/python/.venv .venv && chown 1000:1000 .
USER 1000:1000
CMD ["make", "test"]
ARG REVISION=unknown
LABEL org.opencontainers.image.revision="${REVISION}"

# The target of `docker build .`. The others come before it, because Podman 4 builds all stages up to
# its target.
FROM cpu AS default
