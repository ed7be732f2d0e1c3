#!/bin/sh
# A CA and three certificates for etcd-internal in certs/. A CA that is there is kept, so that running members go on
# trusting each other while certificates are renewed. DAYS (default 365): how long they hold.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p certs
cd certs
days=${DAYS:-365}

if ! [ -f ca.key ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
        -subj /CN=conclave-etcd-ca -keyout ca.key -out ca.crt
fi

# make NAME COMMON-NAME USAGES [SUBJECT-ALTERNATIVE-NAMES]
make() {
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$2" -keyout "$1.key" -out "$1.csr"
    {
        echo "basicConstraints=critical,CA:FALSE"
        echo "keyUsage=critical,digitalSignature"
        echo "extendedKeyUsage=$3"
        if [ -n "${4:-}" ]; then echo "subjectAltName=$4"; fi
    } > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days "$days" -extfile "$1.ext" -out "$1.crt"
    rm "$1.csr" "$1.ext"
}

host=conclave-etcd.conclave-system.svc
names=DNS:$host,DNS:$host.cluster.local
for member in 0 1 2; do
    names=$names,DNS:conclave-etcd-$member.$host,DNS:conclave-etcd-$member.$host.cluster.local
done
make server conclave-etcd serverAuth,clientAuth "$names,DNS:localhost,IP:127.0.0.1"
make peer conclave-etcd-peer serverAuth,clientAuth "$names"
make client conclave clientAuth
echo "certificates for $days days are in $(pwd)"
