package main

import (
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/refloat/refloat/cmd/internal/pulsarflags"
)

// commandGroups are the commands by what one does with them, in the order of the help.
var commandGroups = []struct{ title, commands string }{
	{"Look at jobs and decisions:", "get search explain top export"},
	{"Write and test policies:", "init fmt lint eval test diff whatif shadow simulate convert schema"},
	{"Change what is in force:", "apply delete history rollback kill pause resume open close avoid trust retry give-up start"},
	{"Run and check a deployment:", "up doctor topics cutover verify login logout"},
	{"Copy histories:", "archive record import feed replay"},
}

// sortIntoGroups sorts the commands of the root into groups.
func sortIntoGroups(root *cobra.Command) {
	for _, g := range commandGroups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for name := range strings.FieldsSeq(g.commands) {
			for _, cmd := range root.Commands() {
				if cmd.Name() == name {
					cmd.GroupID = g.title
				}
			}
		}
	}
}

// formerly makes a command that goes by another name now, which it says.
func formerly(name, now string, cmd *cobra.Command) *cobra.Command {
	_, args, _ := strings.Cut(cmd.Use, " ")
	cmd.Use = strings.TrimSpace(name + " " + args)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s is the command %s now\n", cmd.CommandPath(), now)
		return run(cmd, args)
	}
	return cmd
}

// formerNames are commands that go by another name now. The help does not list them.
func formerNames() []*cobra.Command {
	tail := newGetDecisions()
	_ = tail.Flags().Set("last", "10")
	_ = tail.Flags().Set("watch", "true")
	jobDB := &cobra.Command{Use: "jobdb"}
	jobDB.AddCommand(formerly("verify", "verify jobdb", newVerifyJobDB()))
	all := []*cobra.Command{formerly("tail", "get decisions --watch --last 10", tail), jobDB, formerly("explain-field", "explain field", newExplainField())}
	for _, cmd := range all {
		cmd.Hidden = true
	}
	return all
}

const connectionTopic = "connection"

// connectionFlags are those that say where a command looks, how it gets there, and as whom.
func connectionFlags() *pflag.FlagSet {
	var d deployment
	cmd := &cobra.Command{}
	d.bind(cmd)
	d.bindServer(cmd)
	return cmd.Flags()
}

// newConnectionTopic documents these flags once for all commands.
func newConnectionTopic() *cobra.Command {
	return &cobra.Command{
		Use:   connectionTopic,
		Short: "Flags that say where to look, and as whom",
		Long: `A command looks where --data, --server, --job-db or --pulsar says. The other flags say how
it gets there. Each can also be set by the environment (--token-file as
REFLOAT_TOKEN_FILE), or by a file of settings (--config). No command takes all of them.

Flags:
` + strings.TrimRight(connectionFlags().FlagUsages(), "\n"),
	}
}

// shortenHelp leaves out of the help of each command what the topic documents, except for
// where the command looks.
func shortenHelp(root *cobra.Command) {
	addTemplateFunc()
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{ownFlags .}}", 1))
}

// addTemplateFunc adds to what all of cobra's templates share, so it does so once.
var addTemplateFunc = sync.OnceFunc(func() {
	connection := connectionFlags()
	cobra.AddTemplateFunc("ownFlags", func(cmd *cobra.Command) string {
		own := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
		left := false
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			switch documented := connection.Lookup(f.Name); {
			case f.Name == "data", f.Name == "server", f.Name == "job-db", f.Name == pulsarflags.URL, documented == nil, documented.Usage != f.Usage:
				own.AddFlag(f)
			default:
				left = left || !f.Hidden
			}
		})
		text := strings.TrimRight(own.FlagUsages(), "\n")
		if left {
			text += "\n\nMore flags say how to connect, and as whom: " + cmd.Root().Name() + " help " + connectionTopic
		}
		return text
	})
})
