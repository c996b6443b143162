package events

func timestamp(b string, t *Timestamp) error {
	t.Present = true
	for len(b) > 0 {
		var f field
		switch f, b = next(b); f.tag {
		case malformed:
			return errWire
		case 1<<3 | wireVarint:
			t.Seconds = int64(f.v)
		case 2<<3 | wireVarint:
			t.Nanos = int32(f.v)
		}
	}
	return nil
}

// flat checks a message of which nothing is read and whose fields are scalars.
func flat(b string) error {
	for len(b) > 0 {
		var f field
		if f, b = next(b); f.tag == malformed {
			return errWire
		}
	}
	return nil
}

func (d *Decoder) submitJob(b string, ev *Event) error {
	if ev.Submit == nil {
		d.submits = append(d.submits, Submit{})
		ev.Submit = &d.submits[len(d.submits)-1]
	}
	for len(b) > 0 {
		var f field
		var err error
		switch f, b = next(b); f.tag {
		case malformed:
			return errWire
		case 4<<3 | wireBytes:
			err = objectMeta(f.data, ev.Submit, nil)
		case 5<<3 | wireBytes:
			err = d.mainObject(f.data, ev.Submit, podSpecPath[:])
		case 14<<3 | wireBytes:
			err = verified(&ev.JobID, f.data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// objectMeta reads the annotations of a submit or the name of a container; the other is nil.
func objectMeta(b string, s *Submit, c *ContainerError) error {
	for len(b) > 0 {
		var f field
		switch f, b = next(b); f.tag {
		case malformed:
			return errWire
		case 3<<3 | wireBytes:
			if c != nil {
				c.Name = f.data
			}
		case 5<<3 | wireBytes:
			key, value, err := annotation(f.data)
			if err != nil {
				return err
			}
			if s != nil {
				s.Annotate(key, value)
			}
		}
	}
	return nil
}

// annotation reads an entry of a map; what is missing is empty.
func annotation(b string) (key, value string, err error) {
	for len(b) > 0 {
		var f field
		switch f, b = next(b); f.tag {
		case malformed:
			return "", "", errWire
		case 1<<3 | wireBytes:
			key = f.data
		case 2<<3 | wireBytes:
			value = f.data
		}
	}
	return key, value, nil
}

// podSpecPath leads from KubernetesMainObject to PodSpec.
var podSpecPath = [...]uint32{2<<3 | wireBytes, 1<<3 | wireBytes}

func (d *Decoder) mainObject(b string, s *Submit, path []uint32) error {
	if len(path) == 0 {
		return d.podSpec(b, s)
	}
	for len(b) > 0 {
		var f field
		switch f, b = next(b); f.tag {
		case malformed:
			return errWire
		case path[0]:
			if err := d.mainObject(f.data, s, path[1:]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Decoder) podSpec(b string, s *Submit) error {
	for len(b) > 0 {
		var f field
		switch f, b = next(b); f.tag {
		case malformed:
			return errWire
		case 4<<3 | wireVarint:
			s.GraceSeconds = int64(f.v)
		case 20<<3 | wireBytes:
			d.names = append(d.names, "")
			if err := name(f.data, &d.names[len(d.names)-1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// name reads a message of which we read field 1, a string: Container or PodInfo.
func name(b string, s *string) error {
	for len(b) > 0 {
		var f field
		switch f, b = next(b); f.tag {
		case malformed:
			return errWire
		case 1<<3 | wireBytes:
			*s = f.data
		}
	}
	return nil
}

// jobOrder reads a JobOrder. There are few, so each has memory of its own.
func jobOrder(b string, ev *Event) error {
	if ev.Order == nil {
		ev.Order = &Order{}
	}
	for len(b) > 0 {
		var f field
		var err error
		switch f, b = next(b); f.tag {
		case malformed:
			return errWire
		case 1<<3 | wireBytes:
			err = verified(&ev.JobID, f.data)
		case 2<<3 | wireBytes:
			err = verified(&ev.RunID, f.data)
		case 3<<3 | wireBytes:
			err = verified(&ev.Order.ID, f.data)
		case 4<<3 | wireVarint:
			ev.Order.Action = uint32(f.v)
		case 5<<3 | wireBytes:
			err = verified(&ev.Order.Author, f.data)
		case 6<<3 | wireBytes:
			err = verified(&ev.Order.Reason, f.data)
		case 7<<3 | wireVarint:
			ev.Order.NotBefore = int64(f.v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func cancelJobSet(b string, ev *Event) error {
	for len(b) > 0 {
		var f field
		switch f, b = next(b); f.tag {
		case malformed:
			return errWire
		case 1<<3 | wireVarint:
			ev.States |= stateOf(int32(f.v))
		case 1<<3 | wireBytes: // packed
			for len(f.data) > 0 {
				v, n := uvarint(f.data)
				if n < 0 {
					return errWire
				}
				ev.States |= stateOf(int32(v))
				f.data = f.data[n:]
			}
		}
	}
	return nil
}

// resourceInfo gives the event the pod's node if no earlier resource named one.
func resourceInfo(b string, ev *Event) error {
	var node string
	for len(b) > 0 {
		var f field
		var err error
		switch f, b = next(b); f.tag {
		case malformed:
			return errWire
		case 2<<3 | wireBytes:
			err = name(f.data, &node)
		case 3<<3 | wireBytes: // IngressInfo, the oneof's other member
			node, err = "", flat(f.data)
		}
		if err != nil {
			return err
		}
	}
	if ev.Node == "" {
		ev.Node = node
	}
	return nil
}

// jobError reads an Error and keeps it if it is the event's first terminal one.
func (d *Decoder) jobError(b string, ev *Event) error {
	before := d.mark()
	e, terminal, err := d.readError(b)
	if err != nil {
		return err
	}
	if !terminal || ev.Error != nil {
		d.back(before)
		return nil
	}
	ev.Error = e
	return nil
}

// readError reads an Error.
func (d *Decoder) readError(b string) (e *Error, terminal bool, err error) {
	before := len(d.containers)
	d.errors = append(d.errors, Error{})
	e = &d.errors[len(d.errors)-1]
	var last uint32 // last: the oneof's member so far
	for len(b) > 0 {
		var f field
		switch f, b = next(b); f.tag {
		case malformed:
			return nil, false, errWire
		case 1<<3 | wireVarint:
			terminal = f.v != 0
		case 16<<3 | wireBytes:
			e.Category = f.data
		case 17<<3 | wireBytes:
			e.Subcategory = f.data
		default:
			reason, ok := reasonOf(f.tag)
			if !ok {
				continue
			}
			if f.tag != last {
				d.containers = cut(d.containers, before)
				*e = Error{Reason: reason, Category: e.Category, Subcategory: e.Subcategory}
				last = f.tag
			}
			if err := d.reason(f.tag>>3, f.data, e); err != nil {
				return nil, false, err
			}
		}
	}
	e.Containers = since(d.containers, before)
	return e, terminal, nil
}

// reasonOf says whether a tag is that of a member of Error's oneof, and which.
func reasonOf(tag uint32) (Reason, bool) {
	if tag&wireType != wireBytes {
		return OtherReason, false
	}
	switch tag >> 3 {
	case 2, 3, 4, 7, 12, 14:
		return OtherReason, true
	case 6:
		return LeaseExpired, true
	case 8:
		return PodError, true
	case 9:
		return PodLeaseReturned, true
	case 11:
		return PreemptedError, true
	case 13:
		return JobRejected, true
	}
	return OtherReason, false
}

func (d *Decoder) reason(num uint32, b string, e *Error) error {
	switch num {
	case 3: // ContainerError: of no use to us, but what is in it has to be well-formed
		before := len(d.containers)
		err := d.containerError(b)
		d.containers = cut(d.containers, before)
		return err
	case 8:
		return d.podError(b, e)
	case 9:
		return leaseReturned(b, e)
	}
	return flat(b)
}

func leaseReturned(b string, e *Error) error {
	for len(b) > 0 {
		var f field
		switch f, b = next(b); f.tag {
		case malformed:
			return errWire
		case 4<<3 | wireVarint:
			e.RunAttempted = f.v != 0
		}
	}
	return nil
}

func (d *Decoder) podError(b string, e *Error) error {
	for len(b) > 0 {
		var f field
		switch f, b = next(b); f.tag {
		case malformed:
			return errWire
		case 2<<3 | wireBytes:
			e.Message = f.data
		case 3<<3 | wireBytes:
			e.Node = f.data
		case 5<<3 | wireBytes:
			if err := d.containerError(f.data); err != nil {
				return err
			}
		case 6<<3 | wireVarint:
			e.KubernetesReason = KubernetesReason(int32(f.v))
		}
	}
	return nil
}

func (d *Decoder) containerError(b string) error {
	d.containers = append(d.containers, ContainerError{})
	c := &d.containers[len(d.containers)-1]
	for len(b) > 0 {
		var f field
		switch f, b = next(b); f.tag {
		case malformed:
			return errWire
		case 1<<3 | wireBytes:
			if err := objectMeta(f.data, nil, c); err != nil {
				return err
			}
		case 2<<3 | wireVarint:
			c.ExitCode = int32(f.v)
		case 3<<3 | wireBytes:
			c.Message = f.data
		case 4<<3 | wireBytes:
			c.Reason = f.data
		}
	}
	return nil
}
