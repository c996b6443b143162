package storage

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// credentials come from the usual sources of AWS tools: a profile set by name, the
// environment, a web identity (IRSA), the default profile, and the role of the
// container or the machine.
func (s *settings) credentials(getenv func(string) string, transport http.RoundTripper) *credentials.Credentials {
	if s.anonymous {
		return credentials.NewStaticV4("", "", "")
	}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	profile := source{"profile " + cmp.Or(s.profile, "default"), &credentials.FileAWSCredentials{Profile: s.profile}}
	role := source{"role of the container or the machine", &credentials.IAM{Region: s.region, Client: client}}
	sources := []source{{"environment", &credentials.EnvAWS{}}, profile, role}
	if getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "" {
		role.name = "web identity"
		sources = []source{sources[0], role, profile}
	}
	if s.profile != "" {
		sources = []source{profile}
	}
	var provider credentials.Provider = &firstOf{sources: sources}
	if s.role != "" {
		assumed := &assumed{base: credentials.New(provider), role: s.role, region: s.region}
		assumed.Client = client
		provider = assumed
	}
	return credentials.New(provider)
}

// source is one possible source of credentials.
type source struct {
	name string
	credentials.Provider
}

// firstOf tries one source after the other. Unlike the library's chain, it reports why
// none had credentials, and does not continue without.
type firstOf struct {
	sources []source
	found   credentials.Provider
}

func (f *firstOf) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	var why error
	for _, s := range f.sources {
		v, err := s.RetrieveWithCredContext(cc)
		if err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
			f.found = s.Provider
			return v, nil
		}
		why = errors.Join(why, fmt.Errorf("%s: %w", s.name, cmp.Or(err, errNone)))
	}
	return credentials.Value{}, fmt.Errorf("no S3 credentials: %w", why)
}

var errNone = errors.New("no credentials found (role_arn in a profile is not supported: use role=ARN in the URL)")

func (f *firstOf) Retrieve() (credentials.Value, error) { return f.RetrieveWithCredContext(nil) }

func (f *firstOf) IsExpired() bool { return f.found == nil || f.found.IsExpired() }

// assumed are the credentials of a role, obtained with those of base.
type assumed struct {
	base         *credentials.Credentials
	role, region string
	credentials.STSAssumeRole
}

func (a *assumed) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	v, err := a.base.GetWithContext(cc)
	if err != nil {
		return credentials.Value{}, err
	}
	a.STSEndpoint = credentials.DefaultSTSRoleEndpoint
	if a.region != "" {
		a.STSEndpoint = "https://sts." + a.region + ".amazonaws.com"
	}
	a.Options = credentials.STSAssumeRoleOptions{
		AccessKey: v.AccessKeyID, SecretKey: v.SecretAccessKey, SessionToken: v.SessionToken,
		Location: a.region, RoleARN: a.role, RoleSessionName: "refloat",
	}
	v, err = a.STSAssumeRole.RetrieveWithCredContext(cc)
	if err != nil {
		return v, fmt.Errorf("assume role %s: %w", a.role, err)
	}
	return v, nil
}

func (a *assumed) Retrieve() (credentials.Value, error) { return a.RetrieveWithCredContext(nil) }
