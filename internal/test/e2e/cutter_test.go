package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// cutter is the connection between a program and PostgreSQL. It counts the statements from the
// program's first transaction on, and kills the program at one of them.
type cutter struct {
	url    string // for the program
	direct string
	kill   *kill // nil: never
	listen net.Listener
	to     *pgconn.Config

	mu         sync.Mutex // guards the fields below
	program    *Process
	begun      bool
	statements []string
	done       bool // the program was killed
}

// newCutter listens in a directory for connections to the database at a URL.
func newCutter(dir, direct string, k *kill) (*cutter, error) {
	to, err := pgconn.ParseConfig(direct)
	if err != nil {
		return nil, err
	}
	x := &cutter{direct: direct, kill: k, to: to}
	if x.listen, err = net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432")); err != nil {
		return nil, err
	}
	u := url.URL{Scheme: "postgres", User: url.UserPassword(to.User, to.Password), Path: "/" + to.Database}
	u.RawQuery = url.Values{"host": {dir}, "port": {"5432"}, "sslmode": {"disable"}}.Encode()
	x.url = u.String()
	go func() {
		for {
			program, err := x.listen.Accept()
			if err != nil {
				return
			}
			network, address := pgconn.NetworkAddress(to.Host, to.Port)
			server, err := net.Dial(network, address)
			if err != nil {
				_ = program.Close()
				continue
			}
			go (&cutConn{cutter: x, program: program, server: server}).run()
		}
	}()
	return x, nil
}

func (x *cutter) close() { _ = x.listen.Close() }

// start starts the program. nil is no cutter.
func (x *cutter) start(start func() (*Process, error)) (p *Process, err error) {
	if x == nil {
		return start()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.program, err = start()
	return x.program, err
}

// killed reports whether the program was killed. nil is no cutter.
func (x *cutter) killed() bool {
	if x == nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.done
}

// cut kills the program.
func (x *cutter) cut() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.done {
		x.done = true
		x.program.Kill()
	}
}

// statement counts a statement, and reports whether the program is killed before or after it.
func (x *cutter) statement(what string) (before, after bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.begun = x.begun || strings.HasPrefix(strings.ToLower(what), "begin")
	if !x.begun || x.done {
		return x.done, false
	}
	n := len(x.statements)
	x.statements = append(x.statements, what)
	if x.kill == nil || n != x.kill.at {
		return false, false
	}
	return !x.kill.after, x.kill.after
}

// answered reports whether the server answers a statement that is sent by itself.
func answered(what string) bool { return what != "execute" }

// cutConn is one connection.
type cutConn struct {
	*cutter
	program, server net.Conn

	mu    sync.Mutex
	after bool // what the server says does not arrive, and when it is ready, the program is killed
}

func (c *cutConn) run() {
	defer c.program.Close()
	defer c.server.Close()
	go func() {
		_ = c.answers()
		_ = c.program.Close()
	}()
	if err := c.startup(); err != nil {
		return
	}
	for {
		kind, message, err := read(c.program)
		if err != nil {
			return
		}
		what := ""
		switch kind {
		case 'Q':
			what = strings.TrimRight(string(message[5:]), "\x00")
		case 'E':
			what = "execute"
		case 'S':
			what = "sync"
		}
		if what != "" {
			before, after := c.statement(what)
			if before {
				c.cut()
				return
			}
			c.mu.Lock()
			c.after = c.after || after
			c.mu.Unlock()
		}
		if _, err := c.server.Write(message); err != nil {
			return
		}
	}
}

// startup passes on the message without a kind, by which a connection begins.
func (c *cutConn) startup() error {
	var head [4]byte
	if _, err := io.ReadFull(c.program, head[:]); err != nil {
		return err
	}
	if _, err := c.server.Write(head[:]); err != nil {
		return err
	}
	_, err := io.CopyN(c.server, c.program, int64(binary.BigEndian.Uint32(head[:]))-4)
	return err
}

func (c *cutConn) answers() error {
	for {
		kind, message, err := read(c.server)
		if err != nil {
			return err
		}
		c.mu.Lock()
		after := c.after
		c.mu.Unlock()
		switch {
		case !after:
			if _, err := c.program.Write(message); err != nil {
				return err
			}
		case kind == 'Z': // ready for the next statement
			c.cut()
			return nil
		}
	}
}

// read returns the next message, with its kind and length.
func read(from io.Reader) (kind byte, message []byte, err error) {
	message = make([]byte, 5)
	if _, err := io.ReadFull(from, message); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(message[1:])
	if length < 4 || length > 1<<28 {
		return 0, nil, fmt.Errorf("a message of %d bytes", length)
	}
	message = append(message, make([]byte, length-4)...)
	_, err = io.ReadFull(from, message[5:])
	return message[0], message, err
}
