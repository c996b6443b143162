package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// debian writes a Debian package with the programs of dir, and what is said about them in root.
func debian(to, root, dir, version, arch string, when time.Time) (err error) {
	installed := func(from, to string, mode os.FileMode) *files.Content {
		return &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: when}}
	}
	var contents files.Contents
	for _, program := range programs {
		contents = append(contents, installed(filepath.Join(dir, program), "/usr/bin/"+program, 0o755))
	}
	contents = append(contents,
		installed(filepath.Join(root, "LICENSE"), "/usr/share/doc/refloat/copyright", 0o644),
		installed(filepath.Join(root, "CHANGELOG.md"), "/usr/share/doc/refloat/CHANGELOG.md", 0o644))
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "refloat", Arch: arch, Platform: "linux", Version: debianVersion(version), VersionSchema: "none", MTime: when,
		Section: "admin", Priority: "optional", Maintainer: "Refloat <security@refloat.invalid>",
		Description: "Decides what happens to Armada jobs whose runs failed\n Evaluator, ingester and command line. The programs are static.",
		License:     "Apache-2.0", Overridables: nfpm.Overridables{Contents: contents},
	})
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return deb.Default.Package(info, out)
}

// debianVersion is a version in Debian's order: v0.1.0-3-gabcdef, which git describes after a tag, comes after v0.1.0, and
// v0.2.0-rc.1 before v0.2.0. What is no version begins with 0~.
func debianVersion(version string) string {
	number, ok := strings.CutPrefix(version, "v")
	if !ok {
		return "0~" + strings.ReplaceAll(version, "-", ".")
	}
	release, rest, _ := strings.Cut(number, "-")
	switch {
	case rest == "":
		return release
	case rest[0] >= '0' && rest[0] <= '9':
		return release + "+" + strings.ReplaceAll(rest, "-", ".")
	}
	return release + "~" + strings.ReplaceAll(rest, "-", ".")
}
