package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"os"
	"path"
	"path/filepath"
	"time"
)

// pack writes files into a .tar.gz, below the directory top. Owners and the times of the files here are left out.
func pack(to, top string, when time.Time, files []string) (err error) {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	zipped := gzip.NewWriter(out)
	archive := tar.NewWriter(zipped)
	defer func() { err = errors.Join(err, archive.Close(), zipped.Close(), out.Close()) }()
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: path.Join(top, filepath.Base(file)), Mode: 0o644 | int64(info.Mode()&0o111), Size: int64(len(content)), ModTime: when}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return nil
}
