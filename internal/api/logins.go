package api

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"runtime"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// loginsEach limits the password checks of a client, running or waiting.
	loginsEach = 4
	// maxLogins limits the password checks of all clients.
	maxLogins = 64
	// loginTimeout limits how long a password check waits for others.
	loginTimeout = 10 * time.Second
	// loginLasts is how long a correct password is not checked again.
	loginLasts = 5 * time.Minute
)

// logins limits the cost of passwords: a check takes up to a quarter of a second of CPU, whatever its result.
type logins struct {
	key     [sha256.Size]byte // of the digests, which reveal nothing without it
	compare chan struct{}     // holds a token for each running comparison
	shares  Shares            // of the checks that run or wait

	mu    sync.Mutex
	right map[[sha256.Size]byte]struct{}
}

func newLogins() *logins {
	l := &logins{
		compare: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		right:   map[[sha256.Size]byte]struct{}{},
	}
	_, _ = rand.Read(l.key[:]) // never fails
	return l
}

// check compares a password with its hash, unless it was correct a moment ago. A wrong one is also compared with each
// of rest.
func (l *logins) check(ctx context.Context, hash, password string, rest [][]byte) error {
	digest := l.digest(hash, password)
	if l.known(digest) {
		return nil
	}
	leave, err := l.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if l.known(digest) { // an earlier caller had the same password
		return nil
	}
	if bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) != nil {
		for _, decoy := range rest {
			_ = bcrypt.CompareHashAndPassword(decoy, []byte(password))
		}
		return errNoEntry
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.right[digest] = struct{}{}
	time.AfterFunc(loginLasts, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.right, digest)
	})
	return nil
}

func (l *logins) digest(hash, password string) [sha256.Size]byte {
	mac := hmac.New(sha256.New, l.key[:])
	mac.Write([]byte(hash + "\x00" + password)) // a hash contains no NUL
	return [sha256.Size]byte(mac.Sum(nil))
}

func (l *logins) known(digest [sha256.Size]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.right[digest]
	return ok
}

// enter waits until a password may be checked; leave frees the slot.
func (l *logins) enter(ctx context.Context) (leave func(), err error) {
	depart, _ := l.shares.Take(ClientOf(ctx), maxLogins, loginsEach)
	if depart == nil {
		return nil, errManyLogins
	}
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	select {
	case l.compare <- struct{}{}:
		return func() { <-l.compare; depart() }, nil
	case <-ctx.Done():
		depart()
		return nil, errManyLogins
	}
}

var errManyLogins = status.Error(codes.ResourceExhausted, "too many password logins at once: try again in a moment, or use a token")
