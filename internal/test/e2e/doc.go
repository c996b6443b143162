// Package e2e runs our programs as they are installed, as child processes on a
// real Pulsar broker, and checks the logs and the job database that they produce.
//
//	Build, Deployment, Process  the programs and what they need
//	Proxy                       the network between one program and the broker
//	Rogue                       a foreign client that takes over the exclusive producer
//	History                     endless events: recordings, copied with fresh ids
//	Chain, Failures             an independent, plain reader of both logs
//	Deployment.Check            everything that must hold when all is quiet
//
// Its tests are the scenarios that can be scripted; internal/test/chaos draws random
// faults and uses the same parts.
//
// Chain and Failures share no code with the programs under test: they use protobuf-go,
// and implement protocol.md 1 to 3 in one plain function.
package e2e
