package storage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/refloat/refloat/internal/checkpoint"
)

// directory keeps each object in a file below root, with the key as its path.
//
// A temporary file is named like its object, plus a dot and more (checkpoint.Vault
// recognises it by the dot).
type directory struct {
	root string
	mode fs.FileMode // of directories
}

// openDirectory parses file:///dir. It accepts the parameters of gocloud.dev's driver
// that still have a meaning.
func openDirectory(u *url.URL) (*directory, error) {
	if u.Host != "" && u.Host != "localhost" && u.Host != "." {
		return nil, fmt.Errorf("%q is parsed as a host: use three slashes, file:///%s%s", u.Host, u.Host, u.Path)
	}
	if strings.Trim(u.Path, "/") == "" {
		return nil, errors.New("no directory in the URL: use file:///dir")
	}
	d := &directory{root: filepath.Clean(u.Path), mode: 0o750}
	if u.Host == "." {
		d.root = filepath.Clean(strings.TrimPrefix(u.Path, "/"))
	}
	for name, values := range u.Query() {
		switch name {
		case "prefix", "create_dir", "no_tmp_dir", "metadata": // the last three are always on
		case "dir_file_mode":
			mode, err := strconv.ParseUint(values[0], 0, 32)
			if err != nil {
				return nil, errors.New("dir_file_mode is not a number: use, for example, dir_file_mode=0750")
			}
			d.mode = fs.FileMode(mode)
		default:
			return nil, fmt.Errorf("unknown parameter %q for a directory: remove it", name)
		}
	}
	if info, err := os.Stat(d.root); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", d.root)
	}
	return d, os.MkdirAll(d.root, d.mode)
}

// path rejects keys that lead out of the directory.
func (d *directory) path(key string) (string, error) {
	name := filepath.FromSlash(key)
	if !filepath.IsLocal(name) || filepath.Clean(name) != name {
		return "", fmt.Errorf("key %q is not a path below the directory", key)
	}
	return filepath.Join(d.root, name), nil
}

func (d *directory) List(ctx context.Context, prefix string) ([]checkpoint.Object, error) {
	top := d.root
	if i := strings.LastIndex(prefix, "/"); i >= 0 {
		var err error
		if top, err = d.path(prefix[:i]); err != nil {
			return nil, err
		}
		if _, err := os.Stat(top); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	var found []checkpoint.Object
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(d.root, path)
		if err != nil {
			return err
		}
		key := filepath.ToSlash(relative)
		if !strings.HasPrefix(key, prefix) {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		found = append(found, checkpoint.Object{Key: key, Size: info.Size(), Modified: info.ModTime()})
		return nil
	})
	return found, err
}

func (d *directory) Read(_ context.Context, key string) (io.ReadCloser, error) {
	path, err := d.path(key)
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

// Write creates a file beside the object's, syncs it, renames it, and syncs the parent
// directories, which may be new.
func (d *directory) Write(ctx context.Context, key string, content io.Reader, size int64) error {
	path, err := d.path(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), d.mode); err != nil {
		return err
	}
	begun, err := begin(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(begun, exactly(content, size))
	if err == nil {
		err = begun.Sync()
	}
	if err = errors.Join(err, begun.Close()); err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = os.Rename(begun.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(begun.Name()))
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if err := syncDirectory(dir); err != nil {
			return err
		}
		if dir == d.root {
			return nil
		}
	}
}

// begin creates a temporary file beside path, with the permissions of the umask:
// os.CreateTemp would make it accessible only to the owner.
func begin(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path+"."+rand.Text()+".tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

func (d *directory) Delete(_ context.Context, key string) error {
	path, err := d.path(key)
	if err != nil {
		return err
	}
	return os.Remove(path)
}

func syncDirectory(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
