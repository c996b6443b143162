package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // file://
	_ "gocloud.dev/blob/memblob"  // mem://
	_ "gocloud.dev/blob/s3blob"   // s3://
)

// Open opens the storage that a URL names, and looks whether it can be listed:
//
//	file:///dir                      a directory, created when it is not there
//	s3://bucket/prefix?region=…      S3; endpoint=…&use_path_style=true for others
//	mem://                           memory, for tests
//
// S3 credentials come from where the AWS tools look for them, not from the URL.
func Open(ctx context.Context, at string) (*blob.Bucket, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, errors.New("checkpoint storage: the URL cannot be read: write file:///dir or s3://bucket/prefix?region=…")
	}
	name := redacted(u)
	if u, err = prepare(u); err != nil {
		return nil, fmt.Errorf("checkpoint storage %s: %w", name, err)
	}
	bucket, err := blob.OpenBucket(ctx, u.String())
	if err != nil {
		return nil, fmt.Errorf("open checkpoint storage %s: %s", name, withoutSecrets(err, u, name))
	}
	if _, _, err := bucket.ListPage(ctx, blob.FirstPageToken, 1, nil); err != nil {
		err = fmt.Errorf("list checkpoint storage %s: %s: look at the name, the region, the endpoint, the credentials and the right to list", name, withoutSecrets(err, u, name))
		return nil, errors.Join(err, bucket.Close())
	}
	return bucket, nil
}

// prepare gives the URL as the driver of its scheme wants it.
func prepare(u *url.URL) (*url.URL, error) {
	q := u.Query()
	if u.User != nil {
		return nil, errors.New("credentials do not belong in the URL: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a profile")
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" && u.Host != "localhost" && u.Host != "." {
			return nil, fmt.Errorf("%q is taken for a host: write file:///%s%s with three slashes", u.Host, u.Host, u.Path)
		}
		if strings.Trim(u.Path, "/") == "" {
			return nil, errors.New("no directory: write file:///dir")
		}
		// A temporary file elsewhere cannot be renamed across file systems, and
		// attribute files would double the number of files for nothing.
		q.Set("create_dir", "1")
		q.Set("no_tmp_dir", "1")
		q.Set("metadata", "skip")
	case "s3":
		if u.Host == "" {
			return nil, errors.New("no bucket: write s3://bucket/prefix?region=…")
		}
		// The driver does not look at the path.
		if dir := strings.Trim(u.Path, "/"); dir != "" {
			q.Set("prefix", dir+"/"+q.Get("prefix"))
		}
		u.Path = ""
		// What is read is compared with SHA-256 anyhow; a storage without
		// checksums of its own would be warned about at each read.
		if !q.Has("response_checksum_validation") {
			q.Set("response_checksum_validation", "when_required")
		}
	case "mem":
	default:
		return nil, fmt.Errorf("scheme %q is not known: write file:///dir or s3://bucket/prefix?region=…", u.Scheme)
	}
	u.RawQuery = q.Encode()
	return u, nil
}

// redacted is a URL without what may be secret: user and values of parameters.
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

// withoutSecrets is a driver's error, in which the URL may be quoted.
func withoutSecrets(err error, u *url.URL, name string) string {
	s := strings.ReplaceAll(err.Error(), u.String(), name)
	for _, values := range u.Query() {
		for _, v := range values {
			if len(v) > 4 { // shorter ones are switches of ours and theirs
				s = strings.ReplaceAll(strings.ReplaceAll(s, url.QueryEscape(v), "…"), v, "…")
			}
		}
	}
	return s
}
