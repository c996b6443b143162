package pulsartest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/moby/moby/api/pkg/stdcopy"
	docker "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

// errPull reports that Docker works but has no image of the broker yet.
var errPull = errors.New("no image " + Image)

// container is a broker in a container that keeps its ports and its data when
// it is killed.
type container struct {
	*testcontainers.DockerContainer
	client *client.Client
	guard  *guard // nil where the library's own reaper works
	ended  chan struct{}
}

// dockerClient finds Docker where the container library finds it, and asks it for an answer.
func dockerClient(ctx context.Context) (c *client.Client, err error) {
	defer func() {
		if r := recover(); r != nil { // the library panics where it finds no Docker
			c, err = nil, fmt.Errorf("no Docker: %v", r)
		}
	}()
	if err := dockerDefaults(); err != nil {
		return nil, err
	}
	found, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, fmt.Errorf("no Docker: %w", err)
	}
	if _, err := found.Ping(ctx, client.PingOptions{}); err != nil {
		return nil, fmt.Errorf("no Docker: %w", err)
	}
	return found.Client, nil
}

// checkImage says what a container would lack.
func checkImage(ctx context.Context) error {
	c, err := dockerClient(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.ImageInspect(ctx, Image); err != nil {
		return fmt.Errorf("%w: %w", errPull, err)
	}
	return nil
}

func newContainer(ctx context.Context, o Options, p ports, settings map[string]string) (_ *container, err error) {
	cli, err := dockerClient(ctx)
	if err != nil {
		return nil, err
	}
	c := &container{client: cli}
	name := fmt.Sprintf("refloat-pulsartest-%016x", rand.Uint64())
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("create container %s: %w", name, err), c.remove(ctx))
		}
	}()
	if dockerCommand() {
		const clean = `docker rm --force --volumes "$1"`
		if c.guard, err = newGuard(clean, []string{"DOCKER_HOST=" + cli.DaemonHost()}, name); err != nil {
			return nil, err
		}
	}
	bindings, exposed := network.PortMap{}, []string(nil)
	for _, n := range []int{p.service, p.web} {
		port := fmt.Sprintf("%d/tcp", n)
		exposed = append(exposed, port)
		bindings[network.MustParsePort(port)] = []network.PortBinding{{HostIP: netip.MustParseAddr(loopback), HostPort: fmt.Sprint(n)}}
	}
	c.DockerContainer, err = testcontainers.Run(ctx, Image,
		testcontainers.WithName(name),
		testcontainers.WithNoStart(),
		testcontainers.WithLogger(log.NewNoopLogger()),
		testcontainers.WithLabels(map[string]string{"refloat.pulsartest": "broker"}),
		testcontainers.WithEnv(containerEnv(o, settings)),
		testcontainers.WithExposedPorts(exposed...),
		testcontainers.WithHostConfigModifier(func(h *docker.HostConfig) { h.PortBindings = bindings }),
		testcontainers.WithEntrypoint("/bin/bash", "-c"),
		testcontainers.WithCmd("bin/apply-config-from-env.py conf/standalone.conf && "+
			"exec bin/pulsar standalone --no-functions-worker --no-stream-storage --advertised-address "+loopback),
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// containerEnv is read by the image's apply-config-from-env.py.
func containerEnv(o Options, settings map[string]string) map[string]string {
	env := map[string]string{"PULSAR_MEM": o.Memory, "PULSAR_GC": o.JVM, "PULSAR_GC_LOG": " "}
	for key, value := range settings {
		env["PULSAR_PREFIX_"+key] = value
	}
	return env
}

func (c *container) start(ctx context.Context) error {
	if _, err := c.client.ContainerStart(ctx, c.ID, client.ContainerStartOptions{}); err != nil {
		if strings.Contains(err.Error(), "already allocated") || strings.Contains(err.Error(), "address already in use") {
			err = errors.Join(err, errPort)
		}
		return err
	}
	c.ended = make(chan struct{})
	wait := c.client.ContainerWait(context.WithoutCancel(ctx), c.ID, client.ContainerWaitOptions{})
	go func(ended chan struct{}) {
		defer close(ended)
		select {
		case <-wait.Result:
		case err := <-wait.Error:
			_ = err // its end is unknown: start over
		}
	}(c.ended)
	return nil
}

func (c *container) kill(ctx context.Context) error {
	select {
	case <-c.ended:
		return nil
	default:
	}
	if c.ended == nil {
		return nil
	}
	_ = c.resume(ctx) // a paused container cannot be killed
	if _, err := c.client.ContainerKill(ctx, c.ID, client.ContainerKillOptions{Signal: "SIGKILL"}); err != nil {
		return err
	}
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("container %s does not end: %w", c.ID, ctx.Err())
	}
}

func (c *container) pause(ctx context.Context) error {
	_, err := c.client.ContainerPause(ctx, c.ID, client.ContainerPauseOptions{})
	return err
}

func (c *container) resume(ctx context.Context) error {
	_, err := c.client.ContainerUnpause(ctx, c.ID, client.ContainerUnpauseOptions{})
	return err
}

func (c *container) gone() <-chan struct{} { return c.ended }

func (c *container) tail() string {
	ctx, cancel := patient(context.Background())
	defer cancel()
	logs, err := c.client.ContainerLogs(ctx, c.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "40"})
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, &out, logs); err != nil {
		return err.Error()
	}
	return lastLines(out.String())
}

func (c *container) remove(ctx context.Context) error {
	defer c.client.Close()
	var errs []error
	if c.DockerContainer != nil {
		_, err := c.client.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{RemoveVolumes: true, Force: true})
		errs = append(errs, err)
	}
	if c.guard != nil {
		errs = append(errs, c.guard.release())
	}
	return errors.Join(errs...)
}
