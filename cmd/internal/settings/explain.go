package settings

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/suggest"
)

// Explain rewrites an error of a flag set for people: what a value must look like, and which flag an unknown one
// was probably meant to be.
func Explain(flags *pflag.FlagSet, err error) error {
	if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) {
		return fmt.Errorf("--%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), wrongValue(invalid.GetFlag(), err))
	}
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		if near := suggest.Nearest(unknown.GetSpecifiedName(), flagNames(flags)); near != "" {
			return fmt.Errorf("%w: did you mean --%s?", err, near)
		}
	}
	if missing := (*pflag.ValueRequiredError)(nil); errors.As(err, &missing) {
		return fmt.Errorf("--%s needs a value", missing.GetFlag().Name)
	}
	return err
}

func flagNames(flags *pflag.FlagSet) []string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// wrongValue returns what a flag's value must look like, in place of what a parser of Go says about it.
func wrongValue(f *pflag.Flag, err error) error {
	if errors.Is(err, strconv.ErrRange) {
		return errors.New("this number is too large")
	}
	switch f.Value.Type() {
	case "int", "int32", "int64":
		return errors.New("want a whole number")
	case "uint", "uint32", "uint64":
		return errors.New("want a whole number, 0 or more")
	case "float64":
		return errors.New("want a number, such as 0.5")
	case "duration":
		return errors.New("want a duration with its unit, such as 10s, 5m or 1h30m")
	case "bool":
		return errors.New("want true or false")
	case "stringSlice":
		return errors.New("want values separated by commas, without quotes")
	}
	for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(cause) {
		err = cause
	}
	return err
}

// yamlError says where a file is not YAML.
func yamlError(file string, err error) error {
	if at := (*yaml.LoadError)(nil); errors.As(err, &at) {
		return fmt.Errorf("%s:%d: this is not YAML: want `name: value` lines, such as data: /var/lib/refloat", file, at.Mark.Line)
	}
	return fmt.Errorf("%s: this is not YAML: want `name: value` lines, such as data: /var/lib/refloat", file)
}
