// Package doctor looks at the Pulsar cluster of a deployment: whether topics,
// their policies and the brokers' settings are such that nothing is lost and
// nothing waits, and who holds which partition. It also creates the topics.
//
//	Gather  asks the admin API and the decision log for Facts
//	Check   judges Facts, purely
//	Holders lists who holds what, purely
//	Plan    says what is to be created or set, and Step.Do does it
//
// Invariant: what could not be asked is said to be not known, and never taken
// for good. Nothing is changed but by Step.Do.
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
// Of a job database in PostgreSQL, which GatherDatabase asks and CheckDatabase
// judges:
//
//	RD050  it can be reached and is ours                 RD053  nobody holds its locks for long
//	RD051  Armada's tables, as we know them              RD054  what waits, and that nothing is overdue
//	RD052  its places stand in the events log            RD055  pods of failed runs are gone in time
//	                                                     RD056  failures have categories
package doctor
