package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/checkpoint"
)

// Environment is what the program passes in: the environment variables in which AWS
// tools find region and endpoint, and the clock of mem://.
type Environment struct {
	Getenv func(string) string
	Now    func() time.Time
}

// Open opens the storage at a URL, and checks that it can be listed:
//
//	file:///dir                      a directory, created if it does not exist
//	s3://bucket/prefix?region=…      S3; endpoint=…&use_path_style=true for others
//	mem://                           memory, for tests
//
// S3 credentials come from the usual sources of AWS tools, not from the URL.
func Open(ctx context.Context, at string, env Environment) (checkpoint.Storage, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, errors.New("checkpoint storage: invalid URL: use file:///dir or s3://bucket/prefix?region=…")
	}
	name := redacted(u)
	s, err := open(u, env)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint storage %s: %s", name, withoutSecrets(err, u, name))
	}
	if err := probe(ctx, s); err != nil {
		said := withoutSecrets(err, u, name)
		if _, ok := errors.AsType[*advised](err); !ok {
			said += ": check the name, the region, the endpoint, the credentials and the permission to list"
		}
		return nil, fmt.Errorf("list checkpoint storage %s: %s", name, said)
	}
	return s, nil
}

func open(u *url.URL, env Environment) (checkpoint.Storage, error) {
	if u.User != nil {
		return nil, errors.New("credentials do not belong in the URL: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a profile")
	}
	var s checkpoint.Storage
	var err error
	prefix := u.Query().Get("prefix")
	switch u.Scheme {
	case "file":
		s, err = openDirectory(u)
	case "s3":
		if dir := strings.Trim(u.Path, "/"); dir != "" {
			prefix = dir + "/" + prefix
		}
		s, err = openBucket(u, env.Getenv)
	case "mem":
		s = &memory{now: env.Now, objects: map[string]object{}}
	default:
		err = fmt.Errorf("unknown scheme %q: use file:///dir or s3://bucket/prefix?region=…", u.Scheme)
	}
	if err == nil {
		err = checkPrefix(prefix)
	}
	if err != nil || prefix == "" {
		return s, err
	}
	return prefixed{s, prefix}, nil
}

// checkPrefix rejects prefixes whose objects could not be found again, or not with
// other tools.
func checkPrefix(prefix string) error {
	if strings.HasPrefix(prefix, "/") || slices.Contains(strings.Split(prefix, "/"), "..") || strings.ContainsFunc(prefix, func(r rune) bool { return r < ' ' }) {
		return errors.New("invalid prefix: use names between single slashes, without .. and control characters")
	}
	return nil
}

// probe checks that the storage can be listed. It lists a prefix without objects to
// keep the listing short.
func probe(ctx context.Context, s checkpoint.Storage) error {
	_, err := s.List(ctx, "refloat-probe/")
	return err
}

// prefixed puts a prefix before every key.
type prefixed struct {
	checkpoint.Storage
	prefix string
}

func (p prefixed) List(ctx context.Context, prefix string) ([]checkpoint.Object, error) {
	found, err := p.Storage.List(ctx, p.prefix+prefix)
	for i := range found {
		found[i].Key = strings.TrimPrefix(found[i].Key, p.prefix)
	}
	return found, err
}

func (p prefixed) Read(ctx context.Context, key string) (io.ReadCloser, error) {
	return p.Storage.Read(ctx, p.prefix+key)
}

func (p prefixed) Write(ctx context.Context, key string, content io.Reader, size int64) error {
	return p.Storage.Write(ctx, p.prefix+key, content, size)
}

func (p prefixed) Delete(ctx context.Context, key string) error {
	return p.Storage.Delete(ctx, p.prefix+key)
}

// exactly fails if content does not have exactly size bytes.
func exactly(content io.Reader, size int64) io.Reader { return &counted{content, size} }

type counted struct {
	io.Reader
	left int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.left -= int64(n)
	if c.left < 0 || errors.Is(err, io.EOF) && c.left != 0 {
		return n, fmt.Errorf("content does not have the announced length (%d bytes left)", c.left)
	}
	return n, err
}

// redacted is a URL without possible secrets: user and parameter values.
func redacted(u *url.URL) string {
	s := u.Scheme + "://" + u.Host + u.Path
	var names []string
	for name := range u.Query() {
		names = append(names, name+"=…")
	}
	if slices.Sort(names); len(names) > 0 {
		s += "?" + strings.Join(names, "&")
	}
	return s
}

// withoutSecrets is an error's text without the URL's parameter values.
func withoutSecrets(err error, u *url.URL, name string) string {
	s := strings.ReplaceAll(err.Error(), u.String(), name)
	for _, values := range u.Query() {
		for _, v := range values {
			if len(v) > 4 { // shorter ones are switches
				s = strings.ReplaceAll(strings.ReplaceAll(s, url.QueryEscape(v), "…"), v, "…")
			}
		}
	}
	return s
}
