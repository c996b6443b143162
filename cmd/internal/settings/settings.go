// Package settings lets every flag of a command also be set by an environment
// variable or in a file. Precedence, highest first: flag, environment, file,
// default. The names derive from the flag's: --exit-when-drained is
// REFLOAT_EXIT_WHEN_DRAINED and `exit-when-drained:` in the file.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/suggest"
)

// The flags that settings adds to a command.
const (
	flagConfig = "config"
	flagPrint  = "print-config"
)

// ErrPrinted reports that the configuration was printed, as requested, and that nothing is left to do.
var ErrPrinted = errors.New("configuration printed")

// Bind adds --config and --print-config to a command.
func Bind(cmd *cobra.Command) {
	cmd.Flags().String(flagConfig, "", "YAML file with settings, named like the flags")
	cmd.Flags().Bool(flagPrint, false, "print the settings in force and where each comes from, and exit")
}

// Secret marks flags of a command whose values are never printed.
func Secret(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.Flags().SetAnnotation(name, secret, nil); err != nil {
			panic(err) // unknown flag: a bug in this program
		}
	}
}

// secret is the annotation of flags that Secret marked.
const secret = "refloat-secret"

// NotOnCommandLine marks flags of a command that only the environment and the file may set, because other users of the
// machine can see the command line.
func NotOnCommandLine(cmd *cobra.Command, names ...string) {
	Secret(cmd, names...)
	for _, name := range names {
		if err := cmd.Flags().SetAnnotation(name, notOnCommandLine, nil); err != nil {
			panic(err) // unknown flag: a bug in this program
		}
	}
}

// notOnCommandLine is the annotation of flags that NotOnCommandLine marked.
const notOnCommandLine = "refloat-not-on-command-line"

// MayBeEmpty marks flags of a command that take an empty value.
func MayBeEmpty(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.Flags().SetAnnotation(name, mayBeEmpty, nil); err != nil {
			panic(err) // no such flag: a mistake in our own code
		}
	}
}

// mayBeEmpty is the annotation of flags that MayBeEmpty was called for.
const mayBeEmpty = "refloat-may-be-empty"

// CheckEmpty refuses arguments, and values of flags on the command line, that are
// empty. They come from variables that are not set, and must not mean "all" or "none".
func CheckEmpty(cmd *cobra.Command, args []string) error {
	var errs []error
	for i, arg := range args {
		if arg == "" {
			errs = append(errs, fmt.Errorf("argument %d is empty: is a variable not set?", i+1))
		}
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if wrongEmpty(f) {
			errs = append(errs, fmt.Errorf("--%s is empty: give it a value, or leave it out", f.Name))
		}
	})
	return errors.Join(errs...)
}

// wrongEmpty reports whether a flag is empty, or has an empty value in its list, and must not.
func wrongEmpty(f *pflag.Flag) bool {
	if _, ok := f.Annotations[mayBeEmpty]; ok {
		return false
	}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		values := list.GetSlice()
		return len(values) == 0 || slices.Contains(values, "")
	}
	return f.Value.String() == ""
}

// Load sets each flag that the command line omits from the environment or the file, and refuses empty
// values as CheckEmpty does. It returns ErrPrinted after --print-config.
func Load(cmd *cobra.Command) error {
	flags := cmd.Flags()
	source := map[string]string{}
	var errs []error
	flags.Visit(func(f *pflag.Flag) {
		source[f.Name] = "flag"
		if _, ok := f.Annotations[notOnCommandLine]; ok {
			errs = append(errs, fmt.Errorf("--%s: other users of this machine can see the command line: set %s instead", f.Name, envName(f.Name)))
		}
	})
	flags.VisitAll(func(f *pflag.Flag) {
		if value, ok := os.LookupEnv(envName(f.Name)); ok && source[f.Name] == "" && f.Name != "version" {
			source[f.Name] = envName(f.Name)
			if err := flags.Set(f.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("%s=%q: %w", envName(f.Name), value, wrongValue(f, err)))
			} else if wrongEmpty(f) {
				errs = append(errs, fmt.Errorf("%s is empty: give it a value, or unset it", envName(f.Name)))
			}
		}
	})
	if file, _ := flags.GetString(flagConfig); file != "" {
		errs = append(errs, loadFile(flags, file, source))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if asked, _ := flags.GetBool(flagPrint); asked {
		return errors.Join(ErrPrinted, printAll(cmd.OutOrStdout(), flags, source))
	}
	return nil
}

func envName(flag string) string {
	return "REFLOAT_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func loadFile(flags *pflag.FlagSet, file string, source map[string]string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return yamlError(file, err)
	}
	if len(doc.Content) == 0 {
		return nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d:%d: want `name: value` lines", file, root.Line, root.Column)
	}
	var errs []error
	seen := map[string]bool{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		at := fmt.Sprintf("%s:%d:%d", file, key.Line, key.Column)
		f := flags.Lookup(key.Value)
		if f == nil || f.Name == flagConfig || f.Name == flagPrint {
			errs = append(errs, fmt.Errorf("%s: unknown setting %q: %s", at, key.Value, suggest.Fix(key.Value, flagNames(flags), "--help lists them")))
			continue
		}
		if seen[f.Name] || value.Kind != yaml.ScalarNode && value.Kind != yaml.SequenceNode {
			errs = append(errs, fmt.Errorf("%s: %s: want it once, with a value or a list of values", at, key.Value))
			continue
		}
		seen[f.Name] = true
		if source[f.Name] != "" {
			continue
		}
		source[f.Name] = at
		values := scalars(value)
		for _, v := range values {
			if err := flags.Set(f.Name, v); err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %q: %w", at, key.Value, v, wrongValue(f, err)))
			}
		}
		if len(values) == 0 || wrongEmpty(f) {
			errs = append(errs, fmt.Errorf("%s: %s is empty: give it a value, or remove the line", at, key.Value))
		}
	}
	return errors.Join(errs...)
}

// scalars returns the values of a scalar, or of a list for flags that repeat.
func scalars(n *yaml.Node) []string {
	if n.Kind != yaml.SequenceNode {
		return []string{n.Value}
	}
	var out []string
	for _, c := range n.Content {
		out = append(out, c.Value)
	}
	return out
}

func printAll(w io.Writer, flags *pflag.FlagSet, source map[string]string) error {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != flagPrint && f.Name != flagConfig && f.Name != "help" && f.Name != "version" {
			names = append(names, f.Name)
		}
	})
	sort.Strings(names)
	for _, name := range names {
		from := cmp.Or(source[name], "default")
		f := flags.Lookup(name)
		value, err := printed(f.Value)
		if err != nil {
			return err
		}
		if hidden, ok := hide(f); ok {
			// Commented out, so that the output can be read back as a settings file.
			name, value = "# "+name, hidden
		} else if wrongEmpty(f) {
			name = "# " + name
		}
		if _, err := fmt.Fprintf(w, "%s: %s # %s\n", name, value, from); err != nil {
			return err
		}
	}
	return nil
}

// hide returns what is printed in place of a secret: the value of a flag that Secret marked, or a URL with a
// password.
func hide(f *pflag.Flag) (string, bool) {
	value := f.Value.String()
	if _, ok := f.Annotations[secret]; ok || strings.Contains(strings.ToLower(value), "password=") {
		return "(secret)", value != ""
	}
	scheme, rest, ok := strings.Cut(value, "://")
	at := strings.LastIndexByte(rest, '@')
	if !ok || at < 0 || !strings.ContainsRune(rest[:at], ':') {
		return "", false
	}
	user, _, _ := strings.Cut(rest, ":")
	return scheme + "://" + user + ":(secret)" + rest[at:], true
}

// printed formats a value as the settings file takes it.
func printed(v pflag.Value) (string, error) {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v.String()}
	if list, ok := v.(pflag.SliceValue); ok {
		node = &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, text := range list.GetSlice() {
			node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text})
		}
	}
	b, err := yaml.Marshal(node)
	return strings.TrimSpace(string(b)), err
}
