package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Proxy is the network between one program and the broker. Both the broker's
// own protocol and the admin API go through it, so that a cut cuts everything.
//
// The broker says in each lookup at which address it is to be reached; the
// proxy writes its own in there. (Frames are read as far as that needs:
// patch.go.)
type Proxy struct {
	URL, AdminURL string // for the program

	// Shared makes the program's exclusive producers shared ones: the broker then
	// no longer keeps an old owner from publishing, and only the rule of the log does.
	Shared atomic.Bool
	// Fence makes exclusive producers displace the previous one.
	Fence atomic.Bool

	listeners []net.Listener
	mu        sync.Mutex
	cut       Cut
	healed    chan struct{} // closed and replaced with each change of cut
	conns     map[net.Conn]struct{}
	work      sync.WaitGroup
	closed    bool
}

// Cut is how a network fails.
type Cut int

// The cuts. A Blackhole loses nothing: data waits, as in TCP, and arrives when the cut ends, unless one side has
// closed the connection by then.
const (
	Whole     Cut = iota
	Blackhole     // nothing passes, either way
	Deaf          // nothing passes to the program
	Mute          // nothing passes from the program
	Refused       // connections are reset, new ones too
)

var cutNames = [...]string{"whole", "blackhole", "deaf", "mute", "refused"}

// String is the name in reports.
func (c Cut) String() string { return cutNames[c] }

// NewProxy listens on loopback for a program, in front of a broker.
func NewProxy(url, adminURL string) (*Proxy, error) {
	p := &Proxy{conns: map[net.Conn]struct{}{}, healed: make(chan struct{})}
	broker, err := host(url, "pulsar://")
	if err != nil {
		return nil, err
	}
	admin, err := host(adminURL, "http://")
	if err != nil {
		return nil, err
	}
	here, err := p.listen(broker, true)
	if err != nil {
		return nil, err
	}
	there, err := p.listen(admin, false)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.URL, p.AdminURL = "pulsar://"+here, "http://"+there
	return p, nil
}

func host(url, scheme string) (string, error) {
	h := url[min(len(scheme), len(url)):]
	if _, _, err := net.SplitHostPort(h); err != nil {
		return "", fmt.Errorf("proxy for %q: %w (want %shost:port)", url, err, scheme)
	}
	return h, nil
}

func (p *Proxy) listen(to string, frames bool) (string, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	p.listeners = append(p.listeners, l)
	p.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() { p.serve(c, to, l.Addr().String(), frames) })
		}
	})
	return l.Addr().String(), nil
}

// Set cuts or heals the network.
func (p *Proxy) Set(c Cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = c
	close(p.healed)
	p.healed = make(chan struct{})
	if c == Refused {
		p.reset()
	}
}

// Reset resets all connections; new ones are let through.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reset()
}

func (p *Proxy) reset() {
	for c := range p.conns {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0) // an RST, not a FIN
		}
		_ = c.Close()
	}
}

// Close ends it.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Close())
	}
	p.reset()
	close(p.healed)
	p.healed = make(chan struct{})
	p.mu.Unlock()
	p.work.Wait()
	return errors.Join(errs...)
}

// passes waits until the network lets bytes through in a direction. It is false
// when the proxy is closed or a connection of the pair is.
func (p *Proxy) passes(toProgram bool) bool {
	for {
		p.mu.Lock()
		cut, healed, closed := p.cut, p.healed, p.closed
		p.mu.Unlock()
		switch {
		case closed || cut == Refused:
			return false
		case cut == Whole, cut == Deaf && !toProgram, cut == Mute && toProgram:
			return true
		}
		<-healed
	}
}

// serve carries one connection.
func (p *Proxy) serve(program net.Conn, to, here string, frames bool) {
	defer program.Close()
	if !p.keep(program) {
		return
	}
	defer p.drop(program)
	if !p.passes(false) { // a SYN through a black hole waits
		return
	}
	broker, err := new(net.Dialer).DialContext(context.Background(), "tcp", to)
	if err != nil {
		return
	}
	defer broker.Close()
	if !p.keep(broker) {
		return
	}
	defer p.drop(broker)
	var both sync.WaitGroup
	carry := func(dst, src net.Conn, toProgram bool) {
		both.Go(func() {
			if frames {
				p.carryFrames(dst, src, toProgram, here)
			} else {
				p.carryBytes(dst, src, toProgram)
			}
			_ = dst.Close()
			_ = src.Close()
		})
	}
	carry(broker, program, false)
	carry(program, broker, true)
	both.Wait()
}

func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.cut == Refused {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) carryBytes(dst, src net.Conn, toProgram bool) {
	b := make([]byte, 32<<10)
	for {
		n, err := src.Read(b)
		if n > 0 && !p.passes(toProgram) {
			return
		}
		if _, werr := dst.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

// maxFrame is more than the broker takes.
const maxFrame = 64 << 20

func (p *Proxy) carryFrames(dst, src net.Conn, toProgram bool, here string) {
	var size [4]byte
	for {
		if _, err := io.ReadFull(src, size[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(size[:])
		if n > maxFrame {
			return
		}
		frame := make([]byte, 4+n)
		copy(frame, size[:])
		if _, err := io.ReadFull(src, frame[4:]); err != nil {
			return
		}
		if !p.passes(toProgram) {
			return
		}
		if _, err := dst.Write(p.patch(frame, here)); err != nil {
			return
		}
	}
}
