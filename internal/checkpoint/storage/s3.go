package storage

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/encrypt"

	"github.com/refloat/refloat/internal/checkpoint"
)

// bucket keeps objects in an S3 bucket.
type bucket struct {
	client *minio.Core
	name   string
	put    minio.PutObjectOptions
}

// settings are the parameters of an s3:// URL plus the environment.
type settings struct {
	bucket, region, profile, role string
	endpoint                      *url.URL // nil: Amazon's
	pathStyle, anonymous          bool
	insecure                      bool // without TLS
	accelerate, dualStack         bool
	md5                           bool // instead of checksums that old servers reject
	encryption                    encrypt.ServerSide
	caBundle                      string
}

// openBucket returns a client; it does not connect.
func openBucket(u *url.URL, getenv func(string) string) (*bucket, error) {
	s, err := parseS3(u, getenv)
	if err != nil {
		return nil, err
	}
	transport, err := s.transport()
	if err != nil {
		return nil, err
	}
	host := "s3.amazonaws.com"
	if s.endpoint != nil {
		host = s.endpoint.Host
	}
	client, err := minio.NewCore(host, &minio.Options{
		Creds: s.credentials(getenv, transport), Secure: !s.insecure, Transport: transport,
		Region: s.region, BucketLookup: s.lookup(), MaxRetries: 5,
	})
	if err != nil {
		return nil, err
	}
	client.SetS3EnableDualstack(s.dualStack)
	if s.accelerate {
		client.SetS3TransferAccelerate("s3-accelerate.amazonaws.com")
	}
	return &bucket{client, s.bucket, minio.PutObjectOptions{
		ContentType: "application/octet-stream", ServerSideEncryption: s.encryption, SendContentMd5: s.md5,
	}}, nil
}

// parseS3 parses the parameters that gocloud.dev's driver accepted, some of which no
// longer have an effect.
func parseS3(u *url.URL, getenv func(string) string) (*settings, error) {
	if u.Host == "" {
		return nil, errors.New("no bucket in the URL: use s3://bucket/prefix?region=…")
	}
	s := &settings{
		bucket: u.Host, region: cmp.Or(getenv("AWS_REGION"), getenv("AWS_DEFAULT_REGION")),
		profile: getenv("AWS_PROFILE"), caBundle: getenv("AWS_CA_BUNDLE"),
	}
	endpoint := cmp.Or(getenv("AWS_ENDPOINT_URL_S3"), getenv("AWS_ENDPOINT_URL"))
	var sse, key string
	for name, values := range u.Query() {
		value, err := values[0], error(nil)
		switch name {
		case "prefix": // handled by open
		case "region":
			s.region = value
		case "profile":
			s.profile = value
		case "endpoint":
			endpoint = value
		case "ssetype":
			sse = value
		case "kmskeyid":
			key = value
		case "use_path_style", "s3ForcePathStyle":
			s.pathStyle, err = strconv.ParseBool(value)
		case "anonymous":
			s.anonymous, err = strconv.ParseBool(value)
		case "disable_https":
			s.insecure, err = strconv.ParseBool(value)
		case "accelerate":
			s.accelerate, err = strconv.ParseBool(value)
		case "dualstack":
			s.dualStack, err = strconv.ParseBool(value)
		case "role":
			if s.role = value; !strings.HasPrefix(value, "arn:") {
				return nil, errors.New("role is not an ARN (arn:…)")
			}
		case "request_checksum_calculation":
			s.md5 = value == "when_required"
		case "response_checksum_validation", "rate_limiter_capacity", "hostname_immutable", "awssdk":
			// Parameters of the AWS SDK. Everything read is verified by SHA-256 anyway.
		case "fips":
			return nil, errors.New("fips is not supported: use endpoint=https://s3-fips.REGION.amazonaws.com")
		default:
			return nil, fmt.Errorf("unknown parameter %q for S3: remove it", name)
		}
		if err != nil {
			return nil, fmt.Errorf("%s must be true or false", name)
		}
	}
	if err := s.parseEndpoint(endpoint); err != nil {
		return nil, err
	}
	return s, s.parseEncryption(sse, key)
}

func (s *settings) parseEndpoint(at string) error {
	if at == "" {
		return nil
	}
	u, err := url.Parse(at)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return errors.New("invalid endpoint: use http://host:port or https://host:port")
	}
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return errors.New("the endpoint must not have a path: use http://host:port or https://host:port, and put the prefix in s3://bucket/prefix")
	}
	s.endpoint, s.insecure = u, u.Scheme == "http"
	s.region = cmp.Or(s.region, "us-east-1") // most servers ignore it, but it is part of the signature
	return nil
}

func (s *settings) parseEncryption(kind, key string) error {
	var err error
	switch strings.ToLower(kind) {
	case "":
		if key != "" {
			return errors.New("kmskeyid without ssetype: add ssetype=aws:kms")
		}
	case "aes256":
		s.encryption = encrypt.NewSSE()
	case "aws:kms":
		s.encryption, err = encrypt.NewSSEKMS(key, nil)
	default:
		return errors.New("unsupported ssetype: use AES256 or aws:kms, or set the bucket's default encryption")
	}
	return err
}

// lookup returns how a request names the bucket: in the host, as Amazon requires, or in
// the path, if there is no such host.
func (s *settings) lookup() minio.BucketLookupType {
	switch {
	case s.pathStyle:
		return minio.BucketLookupPath
	case s.endpoint == nil:
		return minio.BucketLookupAuto
	case net.ParseIP(s.endpoint.Hostname()) != nil, s.endpoint.Hostname() == "localhost", !s.insecure && strings.Contains(s.bucket, "."):
		return minio.BucketLookupPath
	}
	return minio.BucketLookupDNS
}

// transport trusts AWS_CA_BUNDLE, as the AWS tools do.
func (s *settings) transport() (*http.Transport, error) {
	t, err := minio.DefaultTransport(!s.insecure)
	if err != nil || s.caBundle == "" {
		return t, err
	}
	pem, err := os.ReadFile(s.caBundle)
	if err != nil {
		return nil, fmt.Errorf("AWS_CA_BUNDLE: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("AWS_CA_BUNDLE: %s contains no PEM certificate", s.caBundle)
	}
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	t.TLSClientConfig.RootCAs = pool
	return t, nil
}

// advised is an error of S3 with what to do about it.
type advised struct {
	error
	advice string
}

func (a *advised) Error() string { return a.error.Error() + ": " + a.advice }

func (a *advised) Unwrap() error { return a.error }

// advised adds what to do about an error, if its code tells.
func (b *bucket) advised(err error) error {
	var advice string
	switch minio.ToErrorResponse(err).Code {
	case minio.AccessDenied, minio.AllAccessDisabled:
		advice = "allow s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload on bucket " + b.name + ", and see whether it demands encryption (ssetype)"
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken":
		advice = "check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the profile or the role) and the region"
	case "RequestTimeTooSkewed":
		advice = "set the clock of this machine, or of the server"
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "RequestLimitExceeded":
		advice = "the server limits requests: raise its limit, or take checkpoints less often (--checkpoint-every)"
	default:
		return err
	}
	return &advised{err, advice}
}

func (b *bucket) List(ctx context.Context, prefix string) ([]checkpoint.Object, error) {
	var found []checkpoint.Object
	for o := range b.client.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, b.advised(o.Err)
		}
		found = append(found, checkpoint.Object{Key: o.Key, Size: o.Size, Modified: o.LastModified})
	}
	return found, ctx.Err()
}

func (b *bucket) Read(ctx context.Context, key string) (io.ReadCloser, error) {
	r, _, _, err := b.client.GetObject(ctx, b.name, key, minio.GetObjectOptions{})
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	if err != nil {
		return nil, b.advised(err)
	}
	return r, nil
}

// Write uploads a large object in parts; S3 shows it only when it is complete.
func (b *bucket) Write(ctx context.Context, key string, content io.Reader, size int64) error {
	if _, err := b.client.Client.PutObject(ctx, b.name, key, content, size, b.put); err != nil {
		return b.advised(err)
	}
	return nil
}

func (b *bucket) Delete(ctx context.Context, key string) error {
	if err := b.client.RemoveObject(ctx, b.name, key, minio.RemoveObjectOptions{}); err != nil {
		return b.advised(err)
	}
	return nil
}
