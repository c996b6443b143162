#!/usr/bin/env bash
# Builds the programs and lays out what the image of Dockerfile holds:
#
#   [VERSION=v1.2.0 COMMIT=0123abc] hack/image-tree.sh DIR
#
#   DIR/root   bin/ with the programs, etc/ with CA certificates and the user
#   DIR/owned  the directories that the programs write to
#
# Used by Dockerfile and, where its base images cannot be had, by hack/compose-check.sh.
set -euo pipefail
[ $# = 1 ] || {
	echo "usage: hack/image-tree.sh DIR" >&2
	exit 2
}
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

certificates=/etc/ssl/certs/ca-certificates.crt
[ -s $certificates ] || {
	echo "image-tree: $certificates is missing: install ca-certificates" >&2
	exit 1
}

mkdir -p "$out/root/"{bin,etc/ssl/certs} "$out/owned/"{data,checkpoints,jobs,tmp}
export CGO_ENABLED=0
stamp=github.com/refloat/refloat/cmd/internal/version
go build -trimpath -tags=grpcnotrace -ldflags="-s -w -X $stamp.version=${VERSION:-} -X $stamp.commit=${COMMIT:-}" \
	-o "$out/root/bin/" ./cmd/evaluator ./cmd/ingester ./cmd/refloatctl
go -C deploy/ready build -trimpath -ldflags='-s -w' -o "$out/root/bin/ready" .
cp $certificates "$out/root/etc/ssl/certs/"
echo 'refloat:x:65532:65532:Refloat:/data:/bin/refloatctl' >"$out/root/etc/passwd"
echo 'refloat:x:65532:' >"$out/root/etc/group"
