package storage

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// clouds responds like the cloud services that issue credentials.
type clouds map[string]string // by method, host and path

func (c clouds) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, ok := c[r.Method+" "+r.URL.Host+r.URL.Path]
	if !ok {
		return nil, fmt.Errorf("no route to %s %s", r.Method, r.URL)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
}

const role = `{"AccessKeyId":"%s","SecretAccessKey":"HUSH","Token":"t","Expiration":"2099-01-01T00:00:00Z","Code":"Success"}`

func sts(action, id string) string {
	return fmt.Sprintf(`<%[1]sResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><%[1]sResult><Credentials><AccessKeyId>%[2]s</AccessKeyId>`+
		`<SecretAccessKey>HUSH</SecretAccessKey><SessionToken>t</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></%[1]sResult></%[1]sResponse>`, action, id)
}

// TestCredentials finds credentials in each source of the AWS tools, in their order.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token := file("token", "a token")
	profiles := file("credentials", "[default]\naws_access_key_id = of-default\naws_secret_access_key = HUSH\n[other]\naws_access_key_id = of-other\naws_secret_access_key = HUSH\n")
	config := file("config", "[profile following]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = other\n")
	machine := clouds{
		"PUT 169.254.169.254/latest/api/token":                            "imds",
		"GET 169.254.169.254/latest/meta-data/iam/security-credentials/":  "r",
		"GET 169.254.169.254/latest/meta-data/iam/security-credentials/r": fmt.Sprintf(role, "of-machine"),
		"GET 169.254.170.2/task":                                          fmt.Sprintf(role, "of-container"),
		"POST sts.eu-central-1.amazonaws.com":                             sts("AssumeRoleWithWebIdentity", "of-web-identity"),
		"GET 169.254.170.23/v1/credentials":                               fmt.Sprintf(role, "of-pod"),
	}
	env := map[string]string{"AWS_ACCESS_KEY_ID": "of-environment", "AWS_SECRET_ACCESS_KEY": "HUSH"}
	web := map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_ARN": "arn:aws:iam::1:role/x"}
	files := map[string]string{"AWS_SHARED_CREDENTIALS_FILE": profiles, "AWS_CONFIG_FILE": config}
	tests := []struct {
		name   string
		query  string
		env    []map[string]string
		clouds clouds
		want   string // or a part of the error
	}{
		{"environment", "", []map[string]string{env, web, files}, machine, "of-environment"},
		{"web identity", "", []map[string]string{web, files}, machine, "of-web-identity"},
		{"default profile", "", []map[string]string{files}, machine, "of-default"},
		{"profile of the URL", "&profile=other", []map[string]string{env, web, files}, machine, "of-other"},
		{"profile of the environment", "", []map[string]string{env, files, {"AWS_PROFILE": "other"}}, machine, "of-other"},
		{"container", "", []map[string]string{{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/task"}}, machine, "of-container"},
		{"pod", "", []map[string]string{{"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1/credentials", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": token}}, machine, "of-pod"},
		{"machine", "", nil, machine, "of-machine"},
		{"none", "", nil, nil, "no S3 credentials: environment: "},
		{"profile without", "&profile=following", []map[string]string{env, files}, machine, "use role=ARN in the URL"},
		{
			"role", "&role=arn:aws:iam::1:role/x",
			[]map[string]string{env},
			clouds{"POST sts.eu-central-1.amazonaws.com/": sts("AssumeRole", "of-role")},
			"of-role",
		},
		{"role that is refused", "&role=arn:aws:iam::1:role/x", []map[string]string{env}, nil, "assume role arn:aws:iam::1:role/x: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, name := range []string{
				"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN",
				"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
			} {
				t.Setenv(name, "")
			}
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "none"))
			t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "none"))
			for _, variables := range tt.env {
				for name, value := range variables {
					t.Setenv(name, value)
				}
			}
			u, err := url.Parse("s3://bucket?region=eu-central-1" + tt.query)
			if err != nil {
				t.Fatal(err)
			}
			s, err := parseS3(u, os.Getenv)
			if err != nil {
				t.Fatal(err)
			}
			v, err := s.credentials(os.Getenv, tt.clouds).GetWithContext(nil)
			if got := v.AccessKeyID; err == nil && got != tt.want || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("credentials are %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}
