#!/bin/sh
# make test-e2e: run a command with a Docker engine and what else tests/e2e needs; end what was started here.
#   tests/e2e/run.sh COMMAND...
# As root on Debian or Ubuntu it installs what is missing. An engine that answers (DOCKER_HOST) is used as it is; else one
# is started with a folder of its own (E2E_DIR), where its images stay for the next time. Without either the tests say so.
set -eu
dir=${E2E_DIR:-/var/lib/conclave-e2e}
policy= engine=

finish() {
    code=$?
    trap '' INT TERM
    [ -z "$policy" ] || rm -f "$policy"
    if [ -n "$engine" ]; then
        echo "test-e2e: ending the engine"
        kill "$engine" 2> /dev/null || true
        wait "$engine" 2> /dev/null || true
    fi
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

answers() { docker info > /dev/null 2>&1; }
may_install() { [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; }

missing=
for pair in docker:docker.io docker-compose:docker-compose debootstrap:debootstrap prometheus:prometheus chromium:chromium; do
    command -v "${pair%%:*}" > /dev/null || missing="$missing ${pair##*:}"
done
# the client alone is no engine
if ! answers; then
    for pair in dockerd:docker.io iptables:iptables; do
        command -v "${pair%%:*}" > /dev/null || missing="$missing ${pair##*:}"
    done
fi
if [ -n "$missing" ] && may_install; then
    echo "test-e2e: installing$missing"
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        # what is installed here is not to run as a service of this machine
        policy=/usr/sbin/policy-rc.d
        printf '#!/bin/sh\nexit 101\n' > "$policy"
        chmod +x "$policy"
    fi
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of packages
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing > /dev/null
elif [ -n "$missing" ]; then
    echo "test-e2e: not installed:$missing; install them, or run this as root on Debian or Ubuntu" >&2
fi

if ! answers; then
    if [ "$(id -u)" = 0 ] && command -v dockerd > /dev/null; then
        mkdir -p "$dir"
        export DOCKER_HOST="unix://$dir/docker.sock"
        echo "test-e2e: starting an engine in $dir (its log: $dir/dockerd.log)"
        # in a session of its own: Ctrl-C reaches this script and the tests, which take down what they run on it first
        setsid dockerd --host "$DOCKER_HOST" --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/dockerd.pid" \
            > "$dir/dockerd.log" 2>&1 < /dev/null &
        engine=$!
        timeout 60 sh -c 'until grep -q "API listen on" "$1" || ! kill -0 "$2"; do sleep 0.2; done' sh "$dir/dockerd.log" "$engine" || true
        answers || { echo "test-e2e: the engine does not start: $(tail -n 1 "$dir/dockerd.log")" >&2; exit 1; }
    else
        echo "test-e2e: no Docker engine answers and none can be started here (not root, or no dockerd)" >&2
    fi
fi

"$@"
