# One target per service: agent, coordinator, binder, sensor, autoscaler, jobs, rebalancer, twin, cli, etcd, learner. `make images` builds all.
#   docker build --target agent --build-arg BASE=python:3.11-slim-bookworm -t conclave-agent:0.1.0 .
# The base is an argument: any Debian or Ubuntu with Python 3.11 or later as python3, and its venv module. Wheels are
# fetched and checked outside (`make wheels`), so that building an image needs no network. Each image installs what its
# own images/SERVICE.lock names; torch is in the learner's alone.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS wheels
RUN python3 -m venv /pip
COPY images /images
COPY dist/wheels /wheels

FROM ${BASE} AS runtime
ENV PATH=/opt/conclave/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=2
# Any user may run it, also one that no file names (OpenShift): without these a home and a name would be missing.
ENV HOME=/tmp LOGNAME=conclave
WORKDIR /tmp
USER 65532:65532
ENTRYPOINT []

FROM wheels AS build-agent
RUN /images/install.sh packages agent
COPY dist/conclave /conclave
RUN /images/install.sh service agent
FROM runtime AS agent
COPY --from=build-agent /opt/conclave /opt/conclave
HEALTHCHECK --interval=5s --timeout=3s --retries=6 --start-period=15s CMD ["healthcheck"]
CMD ["conclave", "run", "agent", "--help"]

FROM wheels AS build-coordinator
RUN /images/install.sh packages coordinator
COPY dist/conclave /conclave
RUN /images/install.sh service coordinator
FROM runtime AS coordinator
COPY --from=build-coordinator /opt/conclave /opt/conclave
HEALTHCHECK --interval=5s --timeout=3s --retries=6 --start-period=15s CMD ["healthcheck"]
CMD ["conclave", "run", "coordinator", "--help"]

FROM wheels AS build-binder
RUN /images/install.sh packages binder
COPY dist/conclave /conclave
RUN /images/install.sh service binder
FROM runtime AS binder
COPY --from=build-binder /opt/conclave /opt/conclave
HEALTHCHECK --interval=5s --timeout=3s --retries=6 --start-period=15s CMD ["healthcheck"]
CMD ["conclave", "run", "binder", "--help"]

FROM wheels AS build-sensor
RUN /images/install.sh packages sensor
COPY dist/conclave /conclave
RUN /images/install.sh service sensor
FROM runtime AS sensor
# a sensor has three threads and 20 MB: an arena for each would be a tenth of that
ENV MALLOC_ARENA_MAX=1
COPY --from=build-sensor /opt/conclave /opt/conclave
HEALTHCHECK --interval=30s --timeout=3s --retries=6 --start-period=15s CMD ["healthcheck", "8702", "/livez"]
CMD ["conclave", "run", "sensor", "--help"]

FROM wheels AS build-autoscaler
RUN /images/install.sh packages autoscaler
COPY dist/conclave /conclave
RUN /images/install.sh service autoscaler
FROM runtime AS autoscaler
COPY --from=build-autoscaler /opt/conclave /opt/conclave
HEALTHCHECK --interval=5s --timeout=3s --retries=6 --start-period=15s CMD ["healthcheck"]
CMD ["conclave", "run", "autoscaler", "--help"]

FROM wheels AS build-jobs
RUN /images/install.sh packages jobs
COPY dist/conclave /conclave
RUN /images/install.sh service jobs
FROM runtime AS jobs
COPY --from=build-jobs /opt/conclave /opt/conclave
HEALTHCHECK --interval=5s --timeout=3s --retries=6 --start-period=15s CMD ["healthcheck"]
CMD ["conclave", "run", "jobs", "--help"]

FROM wheels AS build-rebalancer
RUN /images/install.sh packages rebalancer
COPY dist/conclave /conclave
RUN /images/install.sh service rebalancer
FROM runtime AS rebalancer
COPY --from=build-rebalancer /opt/conclave /opt/conclave
HEALTHCHECK --interval=5s --timeout=3s --retries=6 --start-period=15s CMD ["healthcheck"]
CMD ["conclave", "run", "rebalancer", "--help"]

FROM wheels AS build-twin
RUN /images/install.sh packages twin
COPY dist/conclave /conclave
RUN /images/install.sh service twin
FROM runtime AS twin
COPY --from=build-twin /opt/conclave /opt/conclave
HEALTHCHECK --interval=5s --timeout=3s --retries=6 --start-period=15s CMD ["healthcheck", "8080"]
CMD ["conclave", "twin", "serve", "--help"]

FROM wheels AS build-cli
RUN /images/install.sh packages cli
COPY dist/conclave /conclave
RUN /images/install.sh service cli
FROM runtime AS cli
COPY --from=build-cli /opt/conclave /opt/conclave
CMD ["conclave", "--help"]

FROM wheels AS build-etcd
RUN /images/install.sh packages etcd && /images/install.sh service etcd
FROM runtime AS etcd
COPY --from=build-etcd /opt/conclave /opt/conclave
HEALTHCHECK --interval=5s --timeout=3s --retries=6 --start-period=15s CMD ["healthcheck", "2381", "/health"]
CMD ["etcd", "--version"]

FROM wheels AS build-learner
COPY dist/torch /torch
RUN /images/install.sh packages learner /torch
COPY dist/conclave /conclave
RUN /images/install.sh service learner
FROM runtime AS learner
COPY --from=build-learner /opt/conclave /opt/conclave
HEALTHCHECK --interval=5s --timeout=3s --retries=6 --start-period=15s CMD ["healthcheck"]
CMD ["conclave", "run", "learner", "--help"]
