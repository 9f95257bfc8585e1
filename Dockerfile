# One image for every service of docker-compose.yml; each names its own command there.
FROM python:3.11-slim

RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/ndsweep
COPY requirements.lock pyproject.toml README.md LICENSE ./
# Before the sources, so that a change of code does not install torch again.
RUN pip install --no-cache-dir --require-hashes -r requirements.lock
COPY ndadam ndadam
COPY worker worker
COPY sweeps sweeps
COPY dashboards dashboards
COPY service service
COPY ndsweep ndsweep
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

# Trials write checkpoints and logs to /state and read images from /data; nobody here is root.
RUN useradd --create-home ndsweep && mkdir -p /state /data && chown ndsweep: /state /data
USER ndsweep
ENV NDSWEEP_HOME=/state NDSWEEP_DATA=/data PYTHONUNBUFFERED=1
VOLUME ["/state", "/data"]
CMD ["ndsweep", "--help"]
