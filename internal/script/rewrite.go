package script

import (
	"errors"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/ast"
)

// The interpreter counts no memory. So whatever allocates is a call of ours after the rewriting, which counts:
//
//	a .. b          join(a, b)
//	{…}             made(cost, {…})
//	function … end  made(cost, function … end)
//	t[k] = v        put(t, k, v)
//
// And for takes text for a number, as Redis's Lua does: for i = num(0, a), num(1, b) do.
//
// These functions are locals around the script, under names that can't be written in one.
// A chunk becomes
//
//	local join, made, put, args, num = ...
//	return function(...) <the script> end
const (
	nameJoin = "\x00join"
	nameMade = "\x00made"
	namePut  = "\x00put"
	nameArgs = "\x00args"
	nameNum  = "\x00num"
	nameRest = "\x00rest"
)

// What things cost, in bytes, as measured.
const (
	costTable   = 100
	costArray   = 512 // the first slots of one
	costSlot    = 16
	costFields  = 2700 // the first field of a table that was made without any
	costField   = 300  // with its place in the index
	costClosure = 160
	costUpvalue = 24
	costState   = 16 << 10 // of pcall
	costCaught  = 1 << 10  // an error that was caught
	costCompile = 64 << 10
)

// levelsMax is how deep a script may be nested: the compiler calls itself for each level.
const levelsMax = 500

var errLevels = errors.New("chunk has too many syntax levels")

// A rewriter rewrites a syntax tree in place.
type rewriter struct {
	level  int
	names  int  // identifiers met
	argued bool // the function uses arg
}

func rewrite(stmts []ast.Stmt) (all []ast.Stmt, err error) {
	defer func() {
		if p := recover(); p != nil {
			if p != any(errLevels) {
				panic(p)
			}
			err = errLevels
		}
	}()
	w := &rewriter{}
	body := &ast.FunctionExpr{ParList: &ast.ParList{HasVargs: true}, Stmts: stmts}
	body.SetLine(1)
	body.SetLastLine(1)
	if n := len(stmts); n > 0 {
		body.SetLastLine(stmts[n-1].LastLine() + 1)
	}
	w.function(body)
	hidden := &ast.LocalAssignStmt{Names: []string{nameJoin, nameMade, namePut, nameArgs, nameNum}, Exprs: []ast.Expr{&ast.Comma3Expr{}}}
	return []ast.Stmt{hidden, &ast.ReturnStmt{Exprs: []ast.Expr{body}}}, nil
}

// at gives a new node the place of an old one.
func at[N ast.PositionHolder](n N, old ast.PositionHolder) N {
	n.SetLine(old.Line())
	n.SetLastLine(max(old.LastLine(), old.Line()))
	return n
}

func ident(name string, old ast.PositionHolder) *ast.IdentExpr {
	return at(&ast.IdentExpr{Value: name}, old)
}

// call calls a hidden function. The last of the arguments is one value.
func call(name string, old ast.PositionHolder, args ...ast.Expr) *ast.FuncCallExpr {
	if len(args) > 0 {
		switch last := args[len(args)-1].(type) {
		case *ast.FuncCallExpr:
			last.AdjustRet = true
		case *ast.Comma3Expr:
			last.AdjustRet = true
		}
	}
	return at(&ast.FuncCallExpr{Func: ident(name, old), Args: args}, old)
}

func made(cost int, e ast.Expr) ast.Expr {
	return call(nameMade, e, at(&ast.NumberExpr{Value: strconv.Itoa(cost)}, e), e)
}

func (w *rewriter) enter() {
	if w.level++; w.level > levelsMax {
		panic(errLevels)
	}
}

func (w *rewriter) leave() { w.level-- }

// function rewrites the body of a function, and returns what it costs to make one.
func (w *rewriter) function(f *ast.FunctionExpr) (cost int) {
	w.enter()
	defer w.leave()
	names, argued := w.names, w.argued
	w.argued = false
	f.Stmts = w.block(f.Stmts)
	if f.ParList.HasVargs {
		// A function that mentions its further arguments is not given a table of them, which
		// nobody would count.
		first := at(&ast.LocalAssignStmt{Names: []string{nameRest}, Exprs: []ast.Expr{at(&ast.Comma3Expr{}, f)}}, f)
		if w.argued {
			first.Names[0] = "arg"
			first.Exprs[0] = at(&ast.FuncCallExpr{Func: ident(nameArgs, f), Args: []ast.Expr{at(&ast.Comma3Expr{}, f)}}, f)
		}
		f.Stmts = append([]ast.Stmt{first}, f.Stmts...)
	}
	w.argued = argued
	return costClosure + costUpvalue*min(w.names-names+4, 256)
}

func (w *rewriter) block(stmts []ast.Stmt) []ast.Stmt {
	w.enter()
	defer w.leave()
	all := make([]ast.Stmt, 0, len(stmts))
	for _, s := range stmts {
		all = w.stmt(all, s)
	}
	return all
}

// stmt appends what a statement becomes.
func (w *rewriter) stmt(all []ast.Stmt, s ast.Stmt) []ast.Stmt {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return append(all, w.assign(s))
	case *ast.LocalAssignStmt:
		if f, is := one[*ast.FunctionExpr](s.Exprs); is && len(s.Names) == 1 { // It may call itself: it has to stay as it is.
			return append(all, s, w.charge(w.function(f), s))
		}
		w.exprs(s.Exprs)
	case *ast.FuncDefStmt:
		cost := w.function(s.Func)
		if s.Name.Func != nil {
			s.Name.Func = w.target(s.Name.Func)
		}
		if s.Name.Receiver != nil {
			s.Name.Receiver = w.expr(s.Name.Receiver)
		}
		return append(all, s, w.charge(cost+costField, s))
	case *ast.FuncCallStmt:
		w.call(s.Expr.(*ast.FuncCallExpr))
	case *ast.DoBlockStmt:
		s.Stmts = w.block(s.Stmts)
	case *ast.WhileStmt:
		s.Condition, s.Stmts = w.expr(s.Condition), w.block(s.Stmts)
	case *ast.RepeatStmt:
		s.Condition, s.Stmts = w.expr(s.Condition), w.block(s.Stmts)
	case *ast.IfStmt:
		s.Condition, s.Then, s.Else = w.expr(s.Condition), w.block(s.Then), w.block(s.Else)
	case *ast.NumberForStmt:
		s.Init, s.Limit, s.Stmts = w.number(0, s.Init), w.number(1, s.Limit), w.block(s.Stmts)
		if s.Step != nil {
			s.Step = w.number(2, s.Step)
		}
	case *ast.GenericForStmt:
		w.exprs(s.Exprs)
		s.Stmts = w.block(s.Stmts)
	case *ast.ReturnStmt:
		w.exprs(s.Exprs)
	}
	return append(all, s)
}

func one[E ast.Expr](list []ast.Expr) (e E, is bool) {
	if len(list) == 1 {
		e, is = list[0].(E)
	}
	return e, is
}

// charge is a statement that pays for something made before it.
func (w *rewriter) charge(cost int, old ast.PositionHolder) ast.Stmt {
	e := made(cost, at(&ast.NilExpr{}, old))
	return at(&ast.FuncCallStmt{Expr: e}, old)
}

// target rewrites what is assigned to.
func (w *rewriter) target(e ast.Expr) ast.Expr {
	if a, is := e.(*ast.AttrGetExpr); is {
		a.Object, a.Key = w.expr(a.Object), w.expr(a.Key)
		return a
	}
	return w.expr(e)
}

func put(object, key, value ast.Expr, old ast.PositionHolder) ast.Stmt {
	return at(&ast.FuncCallStmt{Expr: call(namePut, old, object, key, value)}, old)
}

// assign rewrites an assignment. One of several values evaluates all before it assigns any, which the compiler
// does not always do.
func (w *rewriter) assign(s *ast.AssignStmt) ast.Stmt {
	for i := range s.Lhs {
		s.Lhs[i] = w.target(s.Lhs[i])
	}
	w.exprs(s.Rhs)
	if len(s.Lhs) == 1 && len(s.Rhs) == 1 {
		if a, is := s.Lhs[0].(*ast.AttrGetExpr); is {
			return put(a.Object, a.Key, s.Rhs[0], s)
		}
		return s
	}
	block := at(&ast.DoBlockStmt{}, s)
	targets, values := at(&ast.LocalAssignStmt{}, s), at(&ast.LocalAssignStmt{Exprs: s.Rhs}, s)
	var puts []ast.Stmt
	for i, e := range s.Lhs {
		n := strconv.Itoa(i)
		values.Names = append(values.Names, nameRest+n)
		value := ident(nameRest+n, s)
		if a, is := e.(*ast.AttrGetExpr); is {
			targets.Names = append(targets.Names, namePut+n, nameArgs+n)
			targets.Exprs = append(targets.Exprs, adjusted(a.Object), adjusted(a.Key))
			puts = append(puts, put(ident(namePut+n, s), ident(nameArgs+n, s), value, s))
		} else {
			puts = append(puts, at(&ast.AssignStmt{Lhs: []ast.Expr{e}, Rhs: []ast.Expr{value}}, s))
		}
	}
	if len(targets.Names) > 0 {
		block.Stmts = append(block.Stmts, targets)
	}
	block.Stmts = append(append(block.Stmts, values), puts...)
	return block
}

// adjusted makes an expression one value.
func adjusted(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		e.AdjustRet = true
	case *ast.Comma3Expr:
		e.AdjustRet = true
	}
	return e
}

// number rewrites a bound of a loop: where it begins, its limit, or its step.
func (w *rewriter) number(which int, e ast.Expr) ast.Expr {
	if _, is := e.(*ast.NumberExpr); is {
		return w.expr(e)
	}
	return call(nameNum, e, at(&ast.NumberExpr{Value: strconv.Itoa(which)}, e), w.expr(e))
}

func (w *rewriter) exprs(list []ast.Expr) {
	for i := range list {
		list[i] = w.expr(list[i])
	}
}

func (w *rewriter) call(e *ast.FuncCallExpr) {
	if e.Func != nil {
		e.Func = w.expr(e.Func)
	}
	if e.Receiver != nil {
		e.Receiver = w.expr(e.Receiver)
	}
	w.exprs(e.Args)
}

// expr returns what an expression becomes.
func (w *rewriter) expr(e ast.Expr) ast.Expr {
	w.enter()
	defer w.leave()
	switch e := e.(type) {
	case *ast.IdentExpr:
		w.names++
		w.argued = w.argued || e.Value == "arg"
	case *ast.NumberExpr:
		if digits := strings.TrimLeft(e.Value, "0"); len(digits) < len(e.Value) && digits != "" && '0' < digits[0] && digits[0] <= '9' { // The compiler would take it for octal.
			e.Value = digits
		}
	case *ast.AttrGetExpr:
		e.Object, e.Key = w.expr(e.Object), w.expr(e.Key)
	case *ast.TableExpr:
		cost, first := costTable, costField
		for _, f := range e.Fields {
			if cost += costSlot; f.Key != nil {
				f.Key = w.expr(f.Key)
				cost += costField + first
				first = 0
			}
			f.Value = w.expr(f.Value)
		}
		return made(cost, e)
	case *ast.FuncCallExpr:
		w.call(e)
	case *ast.LogicalOpExpr:
		e.Lhs, e.Rhs = w.expr(e.Lhs), w.expr(e.Rhs)
	case *ast.RelationalOpExpr:
		e.Lhs, e.Rhs = w.expr(e.Lhs), w.expr(e.Rhs)
	case *ast.ArithmeticOpExpr:
		e.Lhs, e.Rhs = w.expr(e.Lhs), w.expr(e.Rhs)
	case *ast.StringConcatOpExpr:
		return w.join(e)
	case *ast.UnaryMinusOpExpr:
		e.Expr = w.expr(e.Expr)
	case *ast.UnaryNotOpExpr:
		e.Expr = w.expr(e.Expr)
	case *ast.UnaryLenOpExpr:
		e.Expr = w.expr(e.Expr)
	case *ast.FunctionExpr:
		return made(w.function(e), e)
	}
	return e
}

// joinMax is how many operands are joined at once: each takes a register.
const joinMax = 50

func (w *rewriter) join(e *ast.StringConcatOpExpr) ast.Expr {
	var operands []ast.Expr
	for {
		operands = append(operands, w.expr(e.Lhs))
		next, more := e.Rhs.(*ast.StringConcatOpExpr)
		if !more || len(operands) == joinMax {
			operands = append(operands, w.expr(e.Rhs))
			return call(nameJoin, e, operands...)
		}
		e = next
	}
}
