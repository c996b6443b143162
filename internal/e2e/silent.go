package e2e

import "github.com/apache/pulsar-client-go/pulsar/log"

// silent is a log of the client that nobody reads.
type silent struct{}

var (
	_ log.Logger = silent{}
	_ log.Entry  = silent{}
)

func (s silent) SubLogger(log.Fields) log.Logger { return s }
func (s silent) WithFields(log.Fields) log.Entry { return s }
func (s silent) WithField(string, any) log.Entry { return s }
func (s silent) WithError(error) log.Entry       { return s }
func (silent) Debug(...any)                      {}
func (silent) Info(...any)                       {}
func (silent) Warn(...any)                       {}
func (silent) Error(...any)                      {}
func (silent) Debugf(string, ...any)             {}
func (silent) Infof(string, ...any)              {}
func (silent) Warnf(string, ...any)              {}
func (silent) Errorf(string, ...any)             {}
