# The three programs, static, with CA certificates and nothing else:
#
#   docker build -t refloat --build-arg VERSION=$(git describe --tags --always) --build-arg COMMIT=$(git rev-parse HEAD) .
#   docker run --rm refloat refloatctl --help
#
# Where golang:1.26 cannot be had, hack/compose-check.sh builds the stage local.

# What the image is, whoever built the programs.
FROM scratch AS base
ENV PATH=/bin HOME=/data
WORKDIR /data
CMD ["refloatctl", "--help"]

# From programs that hack/image-tree.sh built into the build context.
FROM base AS local
COPY root/ /
COPY --chown=65532:65532 owned/ /
USER 65532:65532

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION
ARG COMMIT
RUN hack/image-tree.sh /out

FROM base
COPY --from=build /out/root/ /
COPY --from=build --chown=65532:65532 /out/owned/ /
USER 65532:65532
