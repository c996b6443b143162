package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// starter is what init writes.
//
//go:embed all:starter
var starter embed.FS

// schemaFile is the name of the schema in starter: policies are not read from hidden files.
const schemaFile = ".schema.json"

func newInit() *cobra.Command {
	return &cobra.Command{
		Use:   "init DIR",
		Short: "Write a first policy with tests",
		Long: `Write a commented policy, a queue that uses it, tests, a CI step and the schema for editors
into a directory, which is created if it does not exist. Existing files are never
overwritten: if there is one, nothing is written. A line before each YAML document names the
schema to an editor: begin each document that you add, after its ---, with one like it.`,
		Example: `  refloatctl init my-policies
  refloatctl lint my-policies && refloatctl test my-policies`,
		Args: argument("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error { return initDir(cmd, args[0]) },
	}
}

func initDir(cmd *cobra.Command, dir string) error {
	files := map[string][]byte{}
	var names []string
	err := fs.WalkDir(starter, "starter", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := starter.ReadFile(name)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(name[len("starter/"):]))
		files[to], names = bytes.ReplaceAll(data, []byte("DIRECTORY"), []byte(filepath.ToSlash(filepath.Clean(dir)))), append(names, to)
		return nil
	})
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	schema, err := policyfile.JSONSchema("")
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	names = append(names, filepath.Join(dir, schemaFile))
	files[names[len(names)-1]] = append(schema, '\n')
	for _, name := range names {
		if _, err := os.Lstat(name); err == nil {
			return fmt.Errorf("init: %s already exists, nothing was written: choose another directory", name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("init: %w", err)
		}
	}
	for _, name := range names {
		if err := writeNew(name, files[name]); err != nil {
			return fmt.Errorf("init: %w", err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\n", name)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "\nEditors complete and check each YAML document that begins with\n  # yaml-language-server: $schema=%s\n", schemaFile)
	fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n", show.Bold(cmd.OutOrStdout(), "Try next"))
	for _, next := range []string{"lint " + dir, "test " + dir + " -v", "eval -p " + dir + " --exit-code 137 --condition OOMKilled", "up --data .refloat-data --policies " + dir} {
		fmt.Fprintf(cmd.OutOrStdout(), "  refloatctl %s\n", next)
	}
	return nil
}

// writeNew writes a file that does not exist yet.
func writeNew(name string, data []byte) error {
	return writeNewBy(name, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// writeNewBy does the same with what write writes.
func writeNewBy(name string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(name)) // half of a file would pass for the whole
	}
	return nil
}
