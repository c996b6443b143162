// Command release builds what a release consists of, and checks it:
//
//	release ROOT build VERSION     programs, Debian packages, image, SBOMs, chart and checksums, into ROOT/dist
//	release ROOT sign KEY          signs the checksums in ROOT/dist
//	release ROOT compare VERSION   builds one platform twice and compares the digests
//	release ROOT licences          the licences of all modules in the programs
//
// The programs are built by `make build`, so that their flags are in one place.
package main

import (
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	programs  = []string{"evaluator", "ingester", "refloatctl"}
	platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}
)

// megabytes are what a program for Linux may have, so that it does not grow unnoticed.
var megabytes = map[string]int64{"evaluator": 55, "ingester": 38, "refloatctl": 70}

func main() {
	err := errors.New("usage: release ROOT build|compare VERSION, release ROOT sign KEY, or release ROOT licences")
	switch args := os.Args[1:]; {
	case len(args) == 3 && args[1] == "build":
		err = build(args[0], args[2])
	case len(args) == 3 && args[1] == "sign":
		err = sign(filepath.Join(args[0], "dist"), args[2])
	case len(args) == 3 && args[1] == "compare":
		err = compare(args[0], args[2])
	case len(args) == 2 && args[1] == "licences":
		err = licences(args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// build fills ROOT/dist. What is in a file depends on the commit, the version and the Go toolchain only.
func build(root, version string) error {
	dist := filepath.Join(root, "dist")
	if err := errors.Join(os.RemoveAll(dist), os.MkdirAll(dist, 0o755)); err != nil {
		return err
	}
	when, err := committed(root)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	image := newImages(version, when)
	for _, platform := range platforms {
		system, arch, _ := strings.Cut(platform, "/")
		name := fmt.Sprintf("refloat-%s-%s-%s", version, system, arch)
		dir := filepath.Join(work, name)
		if err := makeBuild(root, dir, version, platform); err != nil {
			return err
		}
		if err := pack(filepath.Join(dist, name+".tar.gz"), name, when, slices.Concat(in(dir, programs), in(root, []string{"LICENSE", "CHANGELOG.md"}))); err != nil {
			return err
		}
		if system == "linux" {
			err := errors.Join(
				debian(filepath.Join(dist, "refloat_"+debianVersion(version)+"_"+arch+".deb"), root, dir, version, arch, when),
				run(filepath.Join(root, "deploy/ready"), []string{"GOOS=" + system, "GOARCH=" + arch}, "go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, "ready"), "."),
				image.add(dir, arch),
			)
			if err != nil {
				return err
			}
		}
		if platform == platforms[0] {
			for _, program := range programs {
				if err := sbom(filepath.Join(dir, program), version, filepath.Join(dist, program+".cdx.json")); err != nil {
					return err
				}
			}
		}
	}
	if err := image.write(filepath.Join(dist, "refloat-"+version+"-image.tar")); err != nil {
		return err
	}
	if err := run(filepath.Join(root, "internal/tools/chart"), nil, "go", "run", ".", "package", version, strconv.FormatInt(when.Unix(), 10), dist); err != nil {
		return err
	}
	return checksums(dist)
}

// compare builds the first platform here, and in a clone in another directory with an empty build cache.
func compare(root, version string) error {
	status, err := exec.Command("git", "-C", root, "status", "--porcelain").Output()
	if err != nil {
		return err
	}
	if len(status) > 0 {
		return fmt.Errorf("commit first: what is compared is built from a clone\n%s", status)
	}
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	clone, here, there := filepath.Join(work, "a/clone/elsewhere"), filepath.Join(work, "here"), filepath.Join(work, "there")
	err = errors.Join(
		run(root, nil, "git", "clone", "-q", root, clone),
		makeBuild(root, here, version, platforms[0]),
		makeBuild(clone, there, version, platforms[0], "GOCACHE="+filepath.Join(work, "cache")),
	)
	if err != nil {
		return err
	}
	for _, program := range programs {
		first, err := digest(filepath.Join(here, program))
		second, err2 := digest(filepath.Join(there, program))
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if first != second {
			return fmt.Errorf("%s differs: %s, %s", program, first, second)
		}
		fmt.Printf("%s  %s, twice\n", first, program)
	}
	return nil
}

// makeBuild builds the programs for a platform, and sees to it that those for Linux are static and not too large.
func makeBuild(root, dir, version, platform string, env ...string) error {
	system, arch, _ := strings.Cut(platform, "/")
	env = append(env, "GOOS="+system, "GOARCH="+arch)
	if err := run(root, env, "make", "build", "BIN="+dir, "VERSION="+version); err != nil {
		return err
	}
	if system != "linux" {
		return nil
	}
	for _, program := range programs {
		file := filepath.Join(dir, program)
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		if info.Size() > megabytes[program]*1e6 {
			return fmt.Errorf("%s has %d bytes, more than %d MB: docs/internals/dependencies.md says what weighs", file, info.Size(), megabytes[program])
		}
		f, err := elf.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			return fmt.Errorf("%s is not static", file)
		}
	}
	return nil
}

// checksums writes SHA256SUMS, as sha256sum -c reads it.
func checksums(dist string) error {
	entries, err := os.ReadDir(dist)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, e := range entries {
		sum, err := digest(filepath.Join(dist, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, e.Name())
	}
	fmt.Print(text.String())
	return os.WriteFile(filepath.Join(dist, "SHA256SUMS"), []byte(text.String()), 0o644)
}

func digest(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

// committed is the time of the commit that is built, which all packed files get.
func committed(root string) (time.Time, error) {
	out, err := exec.Command("git", "-C", root, "log", "-1", "--format=%ct").Output()
	if err != nil {
		return time.Time{}, err
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}

func in(dir string, names []string) (paths []string) {
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

func run(dir string, env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	// Later ones win. A caller's GOOS is not for the tools that are run.
	cmd.Env = append(append(os.Environ(), "GOOS=", "GOARCH=", "CGO_ENABLED=0", "GOFLAGS=-trimpath -tags=grpcnotrace"), env...)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}
