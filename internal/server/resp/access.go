package resp

import (
	"slices"
	"strings"
)

// accessCommands are what tools ask about users and roles.
func accessCommands() []*command {
	return []*command{
		{name: "ROLE", arity: 1, group: "server", category: "admin", flags: flagFast | flagDangerous, local: role, since: "2.8.12", about: "Returns that the server is a master without replicas."},
		{name: "ACL", arity: -2, group: "server", since: "6.0.0", about: "Commands about users: see AUTH.", subs: map[string]*command{
			"WHOAMI": {name: "ACL|WHOAMI", arity: 2, local: aclWhoAmI, since: "6.0.0", syntax: "WHOAMI", about: "Returns the user of the connection."},
			"USERS":  {name: "ACL|USERS", arity: 2, flags: flagAdmin, local: aclUsers, since: "6.0.0", syntax: "USERS", about: "Returns the user of the connection, and no other."},
			"LIST":   {name: "ACL|LIST", arity: 2, flags: flagAdmin, local: aclList, since: "6.0.0", syntax: "LIST", about: "Returns what the user of the connection is granted."},
			"CAT":    {name: "ACL|CAT", arity: -2, local: aclCat, since: "6.0.0", syntax: "CAT [<category>]", about: "Returns the categories of commands, or the commands of one."},
		}},
	}
}

func role(s *session, _ [][]byte) error {
	s.array(3)
	s.text("master")
	s.integer(0)
	s.array(0)
	return nil
}

func aclWhoAmI(s *session, _ [][]byte) error {
	s.text(s.whoami())
	return nil
}

func aclUsers(s *session, _ [][]byte) error {
	s.array(1)
	s.text(s.whoami())
	return nil
}

func aclList(s *session, _ [][]byte) error {
	pass := "nopass"
	if !s.d.gate.Open() {
		pass = "#(hidden)"
	}
	s.array(1)
	if s.checked {
		s.text("user " + s.whoami() + " on " + pass + " -@all" + rulesOf(s.view.Principal))
		return nil
	}
	s.text("user " + s.whoami() + " on " + pass + " ~* &* +@all")
	return nil
}

// aclCat replies the categories that a command here has, or the commands of one.
func aclCat(s *session, args [][]byte) error {
	if len(args) > 3 {
		return wireError("ERR unknown subcommand or wrong number of arguments for 'CAT'. Try ACL HELP.")
	}
	var categories, found []string
	for _, name := range s.d.names {
		for _, c := range s.d.commands[name].family() {
			for _, category := range c.categories() {
				if !slices.Contains(categories, category[1:]) {
					categories = append(categories, category[1:])
				}
				if len(args) == 3 && category[1:] == strings.ToLower(clip(args[2], 128)) {
					found = append(found, c.lower)
				}
			}
		}
	}
	if len(args) == 3 {
		if len(found) == 0 {
			return wireError("ERR Unknown category '" + clip(args[2], 128) + "'")
		}
		categories = found
	}
	s.array(len(categories))
	for _, word := range categories {
		s.text(word)
	}
	return nil
}
