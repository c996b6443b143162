#!/usr/bin/env bash
# Checks Dockerfile and docker-compose.yml as far as this machine can:
#
#   hack/compose-check.sh          all of it, about two minutes
#   hack/compose-check.sh --quick  without starting the deployment
#
#   1. Docker Compose takes the file.
#   2. The last stage of Dockerfile builds, from programs built here; each runs,
#      not as root, and Refloat decides a recording in it.
#   3. The deployment comes up, decides a recording, doctor finds no error, and
#      the other evaluator goes on when one is killed.
#
# Images other than the broker's are not needed: Prometheus, Grafana, PostgreSQL
# and the stage with the Go compiler are not started.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
"" | --quick) ;;
*)
	echo "usage: hack/compose-check.sh [--quick]" >&2
	exit 2
	;;
esac

say() { echo "compose-check: $*" >&2; }
die() {
	say "$*"
	exit 1
}

hack/parts.sh compose
image=refloat:dev
recording=plain.jsonl.gz
project=refloat-check-$$
export REFLOAT_PULSAR_PORT=${REFLOAT_PULSAR_PORT:-16651} REFLOAT_PULSAR_ADMIN_PORT=${REFLOAT_PULSAR_ADMIN_PORT:-16080}
export REFLOAT_RECORDING=$recording

compose() {
	if docker compose version >/dev/null 2>&1; then
		docker compose -p "$project" "$@"
	else
		docker-compose -p "$project" "$@"
	fi
}

tmp=$(mktemp -d)
up=
finish() {
	local code=$?
	if [ -n "$up" ]; then
		[ $code = 0 ] || compose logs --tail 20 >&2 || true
		compose down -v --remove-orphans >/dev/null 2>&1 || true
	fi
	rm -rf "$tmp"
	exit $code
}
trap finish EXIT

say "the file"
compose config -q

say "the image"
hack/image-tree.sh "$tmp/tree"
docker build -q --target local -t $image -f Dockerfile "$tmp/tree" >/dev/null 2>"$tmp/build" || {
	cat "$tmp/build" >&2
	die "docker build failed"
}
user=$(docker image inspect -f '{{.Config.User}}' $image)
[ "$user" = 65532:65532 ] || die "the image runs as user '$user', want 65532:65532"
for program in evaluator ingester refloatctl; do
	docker run --rm --network none --read-only $image $program --help >"$tmp/help" || die "$program --help failed in the image"
	grep -q '^Usage:' "$tmp/help" || die "$program --help in the image printed no usage"
done
id=$(docker create $image)
certificates=$(docker cp "$id:/etc/ssl/certs/ca-certificates.crt" - | tar -xO | grep -c 'BEGIN CERTIFICATE' || true)
docker rm "$id" >/dev/null
[ "$certificates" -gt 50 ] || die "the image has $certificates CA certificates"
docker run --rm --network none -v "$PWD/testdata/recordings:/recordings:ro" -v "$PWD/examples/policies:/policies:ro" $image \
	refloatctl up --data /data --policies /policies --feed /recordings/$recording --exit-when-drained >"$tmp/run" 2>&1 || {
	tail -20 "$tmp/run" >&2
	die "Refloat did not work in the image"
}
say "the image is $(docker image inspect -f '{{.Size}}' $image) bytes with $certificates CA certificates; its programs run as $user"
[ "${1:-}" != --quick ] || exit 0

metrics() { compose exec -T pulsar curl -fsS -m 5 "http://$1:9090/metrics"; }

# total NAME SERVICE… is the sum of a metric over services and labels.
total() {
	local name=$1 service
	shift
	for service in "$@"; do
		metrics "$service" || return
	done | awk -v name="$name" '{split($1, n, "{")} n[1] == name {sum += $2} END {printf "%d\n", sum}'
}

# eventually SECONDS WHAT COMMAND… waits until a command succeeds.
eventually() {
	local end=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" 2>/dev/null; do
		[ $SECONDS -lt $end ] || die "$what: not in time"
		sleep 1
	done
}

# nodes STATE… says whether evaluators and ingesters all are healthy.
healthy() {
	local service
	for service in evaluator-1 evaluator-2 ingester-1 ingester-2; do
		[ "$(docker inspect -f '{{.State.Health.Status}}' "$(compose ps -q $service)")" = healthy ] || return
	done
}
equal() { # WANT NAME SERVICE…
	local want=$1
	shift
	[ "$(total "$@")" = "$want" ]
}
written() { # every decision is in the job database
	[ "$(total refloat_jobdb_rows_total ingester-1 ingester-2)" -gt 1000 ] && equal 0 refloat_jobdb_lag_messages ingester-1 ingester-2
}

say "the deployment"
start=$SECONDS
up=yes
compose up -d --no-build evaluator-1 evaluator-2 ingester-1 ingester-2 >"$tmp/up" 2>&1 || {
	tail -20 "$tmp/up" >&2
	die "the deployment does not start"
}
eventually 60 "healthy evaluators and ingesters" healthy
say "up after $((SECONDS - start)) s"
compose run --rm -T feed >"$tmp/feed" 2>/dev/null || die "feed failed"
messages=$(sed -nE 's/.*: ([0-9]+) messages, .*/\1/p' "$tmp/feed")
eventually 60 "answers to all $messages messages" equal "$messages" refloat_answered_messages_total evaluator-1 evaluator-2
eventually 60 "all in the job database" written
eventually 30 "an owner for each partition" equal 3 refloat_partition_live evaluator-1 evaluator-2
compose run --rm -T topics refloatctl doctor --quiet >"$tmp/doctor" 2>/dev/null || {
	cat "$tmp/doctor" >&2
	die "doctor finds errors"
}
say "decided $messages messages: $(total refloat_decisions_total evaluator-1 evaluator-2) decisions," \
	"$(total refloat_jobdb_rows_total ingester-1 ingester-2) rows; doctor finds no error"
compose kill evaluator-1 >/dev/null 2>&1
start=$SECONDS
eventually 60 "take-over by the other evaluator" equal 3 refloat_partition_live evaluator-2
say "evaluator-1 killed, evaluator-2 decides all partitions after $((SECONDS - start)) s"
