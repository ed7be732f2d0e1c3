#!/bin/sh
# Two CAs and every certificate of the mesh in certs/, by `conclave pki`. What is there is kept and renewed once less than a
# third of its time is left: run it again every month. DAYS (default 365): how long certificates hold. CONCLAVE: the command.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p certs
cd certs
conclave=${CONCLAVE:-conclave}

for ca in etcd peer; do
    test -f "$ca-ca/ca.key" || $conclave pki init "$ca-ca" --name "conclave-$ca-ca"
done

# make CA FOLDER KIND [NAME] [--san NAME]...
make() {
    ca=$1 folder=$2
    shift 2
    if [ -f "$folder/tls.crt" ]; then
        $conclave pki renew "$folder" --ca "$ca-ca"
    else
        $conclave pki issue "$@" --ca "$ca-ca" --out "$folder" --days "${DAYS:-365}"
    fi
}

host=conclave-etcd.conclave-system.svc
set -- --san "$host" --san "$host.cluster.local"
for member in 0 1 2; do
    set -- "$@" --san "conclave-etcd-$member.$host" --san "conclave-etcd-$member.$host.cluster.local"
done
make etcd etcd-server etcd-server "$@"
make etcd etcd-peer etcd-peer "$@"
for user in coordinator binder agent learner autoscaler jobs rebalancer root; do
    make etcd "etcd-$user" etcd-client "$user"
done
# all pods of a service share its certificate, which names its role
for role in binder agent sensor learner autoscaler jobs rebalancer; do
    make peer "peer-$role" "$role"
done
# people and tools reach the admin API by its Service
admin=conclave-admin.conclave-system.svc
make peer peer-coordinator coordinator --san "$admin" --san "$admin.cluster.local"
$conclave pki show */tls.crt
