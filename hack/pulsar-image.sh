#!/usr/bin/env bash
# Sees to it that Docker has the image apachepulsar/pulsar:4.0.8: as it is, else
# pulled, else built here from the same distribution on a minimal Debian. What is
# built stands in for the official image in tests and in docker-compose.yml; it
# has the same paths, the same user and a script of ours in place of
# bin/apply-config-from-env.py, which is not in the distribution.
set -euo pipefail
cd "$(dirname "$0")/.."

version=4.0.8
image=apachepulsar/pulsar:$version
home=${REFLOAT_PULSAR_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/refloat/pulsar-$version}

say() { echo "pulsar-image: $*" >&2; }
die() {
	say "$*"
	exit 1
}

! docker image inspect "$image" >/dev/null 2>&1 || exit 0

if timeout 60 docker manifest inspect "$image" >/dev/null 2>&1; then
	say "pulling $image"
	docker pull -q "$image" >/dev/null && exit 0
	say "the pull failed"
fi

[ "$(id -u)" = 0 ] || die "no registry answers, and building $image wants root (debootstrap)"
hack/parts.sh process
command -v debootstrap >/dev/null || {
	command -v apt-get >/dev/null || die "no registry answers, and building $image wants Debian's debootstrap"
	say "installing debootstrap"
	{ apt-get update -q && apt-get install -qy --no-install-recommends debootstrap; } >/dev/null
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
root=$tmp/root

# The mirror that this machine already uses.
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $suite" | head -n 1)
say "building $image on $suite"
debootstrap --variant=minbase --include=openjdk-17-jre-headless,python3-minimal,ca-certificates,curl,procps \
	"$suite" "$root" ${mirror:+"$mirror"} >"$tmp/log" 2>&1 || {
	tail -20 "$tmp/log" >&2
	die "debootstrap failed"
}
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/doc/*

mkdir "$root/pulsar"
cp -R "$home/." "$root/pulsar/"
install -m 0755 hack/apply-config-from-env.py "$root/pulsar/bin/"
mkdir -p "$root/pulsar/data" "$root/pulsar/logs"
chown -R 0:0 "$root/pulsar"
chmod -R g=u "$root/pulsar" # the user is 10000 and its group is 0
echo 'pulsar:x:10000:0:Pulsar:/pulsar:/bin/bash' >>"$root/etc/passwd"

tar -C "$root" --numeric-owner -c . | docker import \
	--change 'USER 10000:0' \
	--change 'WORKDIR /pulsar' \
	--change 'ENV PATH=/pulsar/bin:/usr/bin:/bin:/usr/sbin:/sbin' \
	--change "ENV JAVA_HOME=/usr/lib/jvm/java-17-openjdk-$(dpkg --print-architecture)" \
	- "$image" >/dev/null
say "built $image"
