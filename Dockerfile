# One image runs every service: `conclave run coordinator|agent|binder`, `conclave twin serve`, `etcd`.
# The base is an argument: any Debian or Ubuntu with Python 3.11 or later as python3. Wheels are built outside
# (`make wheels`), so that building an image needs no network. No torch: the learner has an image of its own.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE} AS build
COPY dist/wheels /wheels
RUN python3 -m venv /opt/conclave \
 && /opt/conclave/bin/pip install --no-cache-dir --no-index --find-links /wheels --no-deps /wheels/*.whl \
 && /opt/conclave/bin/pip uninstall --yes pip setuptools || true

FROM ${BASE}
COPY --from=build /opt/conclave /opt/conclave
ENV PATH=/opt/conclave/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT []
CMD ["conclave", "version"]
