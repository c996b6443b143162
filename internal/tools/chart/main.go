// Command chart packages the Helm chart. Its tests lint, render and check the chart.
//
//	chart package VERSION SECONDS DIR   writes DIR/refloat-VERSION.tgz; every file in it has the time SECONDS
package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
)

// source is the chart, from the directory of this module.
const source = "../../../deploy/chart/refloat"

func main() {
	err := errors.New("usage: chart package VERSION SECONDS DIR")
	if args := os.Args[1:]; len(args) == 4 && args[0] == "package" {
		var seconds int64
		if seconds, err = strconv.ParseInt(args[2], 10, 64); err == nil {
			_, err = pack(args[1], time.Unix(seconds, 0).UTC(), args[3])
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// pack writes the chart of a version of the programs into dir. What is in it depends on the arguments only.
func pack(version string, when time.Time, dir string) (string, error) {
	c, err := loader.LoadDir(source)
	if err != nil {
		return "", err
	}
	c.Metadata.AppVersion, c.Metadata.Version = version, semantic(version)
	c.ModTime, c.SchemaModTime = when, when
	for _, files := range [][]*common.File{c.Raw, c.Templates, c.Files} {
		for _, f := range files {
			f.ModTime = when
		}
	}
	return chartutil.Save(c, dir)
}

var release = regexp.MustCompile(`^\d+\.\d+\.\d+(-|\+|$)`)

// semantic makes a version of the programs one that Helm accepts: v1.2.0 is 1.2.0, and a commit is of no release.
func semantic(version string) string {
	if plain := strings.TrimPrefix(version, "v"); release.MatchString(plain) {
		return plain
	}
	return "0.0.0-commit." + version
}
