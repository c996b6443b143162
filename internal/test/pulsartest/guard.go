package pulsartest

import (
	"fmt"
	"io"
	"os/exec"
)

// guard cleans up if the test binary exits without doing so: a shell that waits for the end of its input, which
// the kernel closes when we exit.
//
// Each line of its input names something to stop; the line "done" ends the guard.
type guard struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

// newGuard runs script with $last, the last line, and args from $1 on.
func newGuard(script string, env []string, args ...string) (*guard, error) {
	const wait = `while read -r line; do [ "$line" != done ] || exit 0; last=$line; done; `
	cmd := exec.Command("sh", append([]string{"-c", wait + script, "pulsartest-guard"}, args...)...)
	cmd.Env = append(cmd.Environ(), env...)
	cmd.SysProcAttr = ownGroup()
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	return &guard{cmd, input}, nil
}

func (g *guard) send(line string) error {
	if _, err := fmt.Fprintln(g.input, line); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}

// release ends the guard without a clean-up.
func (g *guard) release() error {
	if err := g.send("done"); err != nil {
		return err
	}
	if err := g.input.Close(); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return g.cmd.Wait()
}
