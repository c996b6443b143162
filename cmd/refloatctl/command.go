package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/cmd/internal/show"
)

// What all commands have in common is checked here, before one runs: its arguments, its settings, and the form of its output.

// checkArgs makes a wrong number of arguments, an unknown or missing subcommand, an empty argument or value of a flag, and
// an unknown form, usage errors of a command and all below it.
func checkArgs(c *cobra.Command) {
	check := c.Args
	if onlySubcommands(c) {
		check = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] != "" {
				return unknownCommand(cmd, args[0])
			}
			return nil
		}
		if !c.Runnable() {
			c.RunE = func(cmd *cobra.Command, _ []string) error { return usageError{needsSubcommand(cmd)} }
		}
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if check != nil {
			if err := check(cmd, args); err != nil {
				return usageError{fmt.Errorf("%w; usage: %s", err, cmd.UseLine())}
			}
		}
		if err := settings.CheckEmpty(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			if err := checkForm(cmd); err != nil {
				return err
			}
			return run(cmd, args)
		}
	}
	for _, sub := range c.Commands() {
		checkArgs(sub)
	}
}

// noArgument refuses arguments, and names the command that shows one of what this one lists.
func noArgument(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("%s takes no argument, but has %q", cmd.Name(), args[0])
	for _, one := range cmd.Parent().Commands() {
		if one.Name()+"s" == cmd.Name() {
			err = fmt.Errorf("%w: `%s` shows one", err, one.CommandPath())
		}
	}
	return err
}

// argument requires one argument, and names it in the error.
func argument(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 1:
			return nil
		case 0:
			return fmt.Errorf("%s is missing", name)
		}
		return fmt.Errorf("one %s is wanted, not %d", name, len(args))
	}
}

// bindSettings lets the flags of a command also be set by the environment or a file.
func bindSettings(cmd *cobra.Command) {
	settings.Bind(cmd)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return loadSettings(cmd) }
}

// loadSettings reads environment and file; its errors are usage errors.
func loadSettings(cmd *cobra.Command) error {
	err := settings.Load(cmd)
	if err == nil || errors.Is(err, settings.ErrPrinted) {
		return err
	}
	return usageError{err}
}

// formsOf is the annotation of -o with the forms that a command has.
const formsOf = "forms"

// addForms adds -o with the forms of a command; the first is the default.
func addForms(cmd *cobra.Command, form *string, help string, forms ...string) {
	cmd.Flags().StringVarP(form, "output", "o", forms[0], help)
	complete(cmd, "output", forms...)
	if err := cmd.Flags().SetAnnotation("output", formsOf, forms); err != nil {
		panic(err) // the flag does not exist
	}
}

// addOutput adds -o to a command whose answer is text or JSON.
func addOutput(cmd *cobra.Command, form *string) {
	addForms(cmd, form, "table (for people) or json (one object a line, stable)", show.FormTable, show.FormJSON)
}

func checkForm(cmd *cobra.Command) error {
	f := cmd.Flags().Lookup("output")
	if f == nil || f.Annotations[formsOf] == nil {
		return nil
	}
	if form, _, custom := strings.Cut(f.Value.String(), "="); !slices.Contains(f.Annotations[formsOf], form) || custom != (form == show.FormCustom) {
		return usageError{show.UnknownForm(f.Value.String(), f.Annotations[formsOf]...)}
	}
	return nil
}
