# One image for every service of docker-compose.yml; each names its own command there.
#
#   TORCH_INDEX   address of torch's CPU builds: an image without CUDA's libraries and a compiler
#   PYTHON_IMAGE  the base; python@sha256:… of the machine's registry pins its bytes
ARG PYTHON_IMAGE=python:3.11-slim

# What needs pip, an index and the sources; the image gets the environment alone.
FROM ${PYTHON_IMAGE} AS environment
ARG TORCH_INDEX=
RUN python -m venv /opt/ndsweep
WORKDIR /build
# Before the sources, so that a change of code does not install torch again.
COPY requirements-image.lock asked.lock
RUN if [ -n "$TORCH_INDEX" ]; then \
        # The lock has the hashes of the builds with CUDA, so these two are held to their versions only.
        awk '/^[a-z]/ { kept = !/^(torch|torchvision|triton|nvidia-[a-z0-9-]+|cuda-[a-z]+)==/ } kept' asked.lock >rest.lock \
        && /opt/ndsweep/bin/pip install --no-cache-dir --no-deps --index-url "$TORCH_INDEX" \
            $(grep -oE '^torch(vision)?==[0-9.]+' asked.lock) \
        && mv rest.lock asked.lock; \
    fi; \
    /opt/ndsweep/bin/pip install --no-cache-dir --no-deps --require-hashes -r asked.lock
COPY pyproject.toml README.md LICENSE ./
COPY ndadam ndadam
COPY worker worker
COPY sweeps sweeps
COPY dashboards dashboards
COPY service service
COPY ndsweep ndsweep
RUN /opt/ndsweep/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/ndsweep/bin/python -m compileall -q /opt/ndsweep/lib

FROM ${PYTHON_IMAGE}
ARG TORCH_INDEX=
# Triton compiles its launchers on the machine with the card.
RUN if [ -z "$TORCH_INDEX" ]; then \
        apt-get update \
        && apt-get install -y --no-install-recommends gcc libc6-dev \
        && rm -rf /var/lib/apt/lists/*; \
    fi
# Nobody here is root, and volumes begin with the owner that their folder has here: trials write
# checkpoints and logs to /state and read images from /data, MLflow keeps artifacts in /mlflow.
RUN useradd --uid 1000 --create-home ndsweep \
    && mkdir -p /state /data /mlflow /secrets/api /secrets/ray /secrets/database \
    && chown -R ndsweep: /state /data /mlflow /secrets
COPY --from=environment /opt/ndsweep /opt/ndsweep
ENV PATH=/opt/ndsweep/bin:$PATH NDSWEEP_HOME=/state NDSWEEP_DATA=/data PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 1000:1000
WORKDIR /state
CMD ["ndsweep", "--help"]
