// Package doctor checks the Pulsar cluster of a deployment: whether topics, their
// policies and the brokers' settings could lose or delay messages. It shows which
// process owns which partition, and creates the topics.
//
//	Gather  reads Facts from the admin API and the decision log
//	Check   checks Facts (pure)
//	Holders lists which process owns what (pure)
//	Plan    lists what to create or set, and Step.Do does it
//
// Invariant: a fact that could not be read is reported as unknown, and never passes
// a check. Only Step.Do changes anything.
//
// # Codes
//
//	RD001  the client reaches the service URL            RD020  retention of decisions and policies
//	RD002  version of the broker                         RD021  retention of events
//	RD003  the brokers' configuration can be read        RD022  message TTL
//	RD010  events                                        RD023  backlog quota
//	RD011  decisions, with as many partitions            RD024  deletion of inactive topics
//	RD012  policies, with one partition                  RD025  compaction
//	RD013  partitions that the decision log was made by  RD026  deduplication
//	RD030  delay of reads at the end of a topic          RD040  subscription of the evaluators
//	RD031  the bookies sync their journal                RD041  subscription of the ingesters
//	RD032  keep-alive                                    RD042  each partition of events has an evaluator
//	RD033  delay of fail-over                            RD043  the right to publish decisions
//	RD034  rate of storing acknowledgements              RD044  each partition of decisions has an ingester
//	RD035  largest message
//	RD036  the broker numbers messages
//
// For a job database in PostgreSQL, which GatherDatabase reads and CheckDatabase
// checks:
//
//	RD050  it can be reached and is ours                 RD053  nobody holds its locks for long
//	RD051  Armada's tables, as we know them              RD054  what waits, and that nothing is overdue
//	RD052  its places stand in the events log            RD055  pods of failed runs are gone in time
//	                                                     RD056  failures have categories
package doctor
