#!/usr/bin/env bash
# Gets the real parts that integration tests want, and does nothing where they are there:
#
#   hack/parts.sh            all of it
#   hack/parts.sh process    the Pulsar distribution and Java: a broker as a child process
#   hack/parts.sh container  Docker and the image of the broker
#   hack/parts.sh promtool   the checker of alert rules
#   hack/parts.sh compose    container, and Docker Compose (not part of all)
#
# The cache directory is refloat in XDG_CACHE_HOME or ~/.cache: pulsar-4.0.8, which
# REFLOAT_PULSAR_HOME can name elsewhere, and bin/promtool.
set -euo pipefail
cd "$(dirname "$0")/.."

version=4.0.8
cache=${XDG_CACHE_HOME:-$HOME/.cache}/refloat
home=${REFLOAT_PULSAR_HOME:-$cache/pulsar-$version}
docker_log=${TMPDIR:-/tmp}/refloat-dockerd.log

say() { echo "parts: $*" >&2; }
die() {
	say "$*"
	exit 1
}
have() { type -P "$1" >/dev/null; }
is_root() { [ "$(id -u)" = 0 ]; }

# install PROGRAM=PACKAGE… installs the packages whose programs are missing.
install() {
	local pair packages=()
	for pair in "$@"; do
		have "${pair%%=*}" || packages+=("${pair#*=}")
	done
	[ ${#packages[@]} -gt 0 ] || return 0
	have apt-get || die "please install ${packages[*]}: this machine has no apt-get to do it with"
	is_root || die "please install ${packages[*]}, or run this as root"
	say "installing ${packages[*]}"
	local log
	log=$(mktemp)
	if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
		tail -20 "$log" >&2
		die "apt-get could not install ${packages[*]}; all it said is in $log"
	fi
	rm -f "$log"
}

process() {
	if [ -x "$home/bin/pulsar" ]; then
		have "${JAVA_HOME:+$JAVA_HOME/bin/}java" || install java=openjdk-17-jre-headless
		return
	fi
	install java=openjdk-17-jre-headless mvn=maven tar=tar
	mkdir -p "$(dirname "$home")"
	local tmp
	tmp=$(mktemp -d "$home.XXXXXX")
	# shellcheck disable=SC2064 # the name of now
	trap "rm -rf '$tmp'" EXIT
	say "fetching Pulsar $version through Maven, about 245 MB"
	mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
		-Dartifact=org.apache.pulsar:pulsar-server-distribution:$version:tar.gz:bin -DoutputDirectory="$tmp/dl" >"$tmp/log" 2>&1 || {
		tail -20 "$tmp/log" >&2
		die "Maven could not fetch Pulsar; put the unpacked distribution into $home by hand, or set REFLOAT_PULSAR_HOME"
	}
	mkdir "$tmp/pulsar"
	tar -xzf "$tmp"/dl/*.tar.gz -C "$tmp/pulsar" --strip-components=1
	# Two may do this at once: the first one stays.
	mv -T "$tmp/pulsar" "$home" 2>/dev/null || [ -x "$home/bin/pulsar" ] || die "could not write $home"
	rm -rf "$tmp"
	trap - EXIT
	say "Pulsar $version is in $home"
}

# The program alone, out of Debian's package: no daemon, no root.
promtool() {
	! have promtool || return 0
	[ ! -x "$cache/bin/promtool" ] || return 0
	{ have apt-get && have dpkg; } || die "please install promtool, which comes with Prometheus"
	local tmp
	tmp=$(mktemp -d)
	say "fetching promtool"
	! is_root || apt-get update >/dev/null 2>&1 || die "apt-get update does not work"
	(cd "$tmp" && apt-get download prometheus >/dev/null 2>&1 && dpkg -x prometheus_*.deb .) || die "apt-get could not download prometheus"
	mkdir -p "$cache/bin"
	mv "$tmp/usr/bin/promtool" "$cache/bin/promtool"
	rm -rf "$tmp"
}

answers() { have docker && timeout 20 docker info >/dev/null 2>&1; }

docker_engine() {
	! answers || return 0
	is_root || die "Docker does not answer: start it, or run this as root"
	install dockerd=docker.io docker=docker.io iptables=iptables
	say "starting dockerd, which logs to $docker_log"
	setsid nohup dockerd >"$docker_log" 2>&1 </dev/null &
	local i
	for ((i = 0; i < 60; i++)); do
		! answers || return 0
		sleep 0.5
	done
	tail -20 "$docker_log" >&2
	die "dockerd does not answer; its log is $docker_log"
}

container() {
	docker_engine
	hack/pulsar-image.sh
}

compose() {
	container
	! docker compose version >/dev/null 2>&1 || return 0
	install docker-compose=docker-compose
}

case ${1:-all} in
process) process ;;
container) container ;;
promtool) promtool ;;
compose) compose ;;
all)
	process
	promtool
	if answers || is_root; then
		container
	else
		say "no Docker, and no root to start it: brokers run as child processes"
	fi
	;;
*) die "unknown part $1: want process, container, promtool or compose, or nothing for all" ;;
esac
