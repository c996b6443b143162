package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user runs the image, and owns the directories that the programs write to.
const user = 65532

const certificates = "/etc/ssl/certs/ca-certificates.crt"

// images adds the platforms of a multi-arch image, and writes it as an OCI layout.
type images struct {
	index   v1.ImageIndex
	version string
	when    time.Time
}

func newImages(version string, when time.Time) *images {
	return &images{index: mutate.IndexMediaType(empty.Index, types.OCIImageIndex), version: version, when: when}
}

// add adds an image with the programs in dir, which are in Dockerfile's places. What is in it depends on them, on the
// commit and on the CA certificates of this machine.
func (i *images) add(dir, arch string) error {
	programs := append(slices.Clone(programs), "ready")
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		content, err := i.tree(dir, programs)
		return io.NopCloser(bytes.NewReader(content)), err
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return err
	}
	image, err := mutate.Append(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1), mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: i.when}, CreatedBy: "make release"},
	})
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: i.when}
	config.Config = v1.Config{
		Env: []string{"PATH=/bin", "HOME=/data"}, WorkingDir: "/data", Cmd: []string{"refloatctl", "--help"}, User: fmt.Sprintf("%d:%d", user, user),
		Labels: map[string]string{"org.opencontainers.image.version": i.version, "org.opencontainers.image.licenses": "Apache-2.0"},
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	i.index = mutate.AppendManifests(i.index, mutate.IndexAddendum{
		Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
	})
	return nil
}

// tree is the file system of an image, as a tar.
func (i *images) tree(dir string, programs []string) ([]byte, error) {
	trusted, err := os.ReadFile(certificates)
	if err != nil {
		return nil, fmt.Errorf("install ca-certificates: %w", err)
	}
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	var errs []error
	add := func(name string, mode int64, owner int, content []byte) {
		kind := byte(tar.TypeReg)
		if strings.HasSuffix(name, "/") {
			kind = tar.TypeDir
		}
		errs = append(errs, archive.WriteHeader(&tar.Header{Name: name, Typeflag: kind, Mode: mode, Uid: owner, Gid: owner, Size: int64(len(content)), ModTime: i.when}))
		_, err := archive.Write(content)
		errs = append(errs, err)
	}
	add("bin/", 0o755, 0, nil)
	for _, program := range programs {
		content, err := os.ReadFile(filepath.Join(dir, program))
		if err != nil {
			return nil, err
		}
		add("bin/"+program, 0o755, 0, content)
	}
	add("etc/", 0o755, 0, nil)
	add("etc/ssl/", 0o755, 0, nil)
	add("etc/ssl/certs/", 0o755, 0, nil)
	add("etc/ssl/certs/ca-certificates.crt", 0o644, 0, trusted)
	add("etc/passwd", 0o644, 0, fmt.Appendf(nil, "refloat:x:%[1]d:%[1]d:Refloat:/data:/bin/refloatctl\n", user))
	add("etc/group", 0o644, 0, fmt.Appendf(nil, "refloat:x:%d:\n", user))
	for _, owned := range []string{"data/", "checkpoints/", "jobs/", "tmp/"} {
		add(owned, 0o755, user, nil)
	}
	return out.Bytes(), errors.Join(append(errs, archive.Close())...)
}

// write writes the layout below the name of the archive: to.tar, which skopeo, podman and crane read.
func (i *images) write(to string) error {
	work, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	index, ok := mutate.Annotations(i.index, map[string]string{"org.opencontainers.image.version": i.version}).(v1.ImageIndex)
	if !ok {
		return errors.New("annotations of an index make no index")
	}
	at, err := layout.Write(work, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	if err := at.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": i.version})); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s  image\n", digest)
	return packTree(to, work, i.when)
}

// packTree writes a directory into a .tar, in the order of names.
func packTree(to, dir string, when time.Time) (err error) {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(out)
	defer func() { err = errors.Join(err, archive.Close(), out.Close()) }()
	return filepath.WalkDir(dir, func(file string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(content)), ModTime: when}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = archive.Write(content)
		return err
	})
}
