"""Bad commands: each is one line on standard error and exit code 2, and leaves nothing behind."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

with warnings.catch_warnings():  # typer uses names that click deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from fedchord.cli import main

pytestmark = pytest.mark.filterwarnings("ignore:.*removed in Click:DeprecationWarning")

BAD = """
run method= -> run: method has no value; write method=VALUE
run method=fedpox -> unknown method 'fedpox'; did you mean 'fedprox'?
run method=3 -> unknown method '3'
run mixing=none -> unknown mixing rule 'none'
run mixing=unifrm -> unknown mixing rule 'unifrm'; did you mean 'uniform'?
run server=x -> unknown server rule 'x'
run model=resnet1000 -> unknown model 'resnet1000'; did you mean 'resnet10'?
run model=cvae -> run: model=cvae is for fedcvae, got method=fedavg
run data=mnits -> unknown data set 'mnits'; did you mean 'mnist'?
run data=none.csv -> data: none.csv: no such file
run data=none.npz -> data: none.npz: no such file
run data=../in/FILE -> unknown data set '../in/FILE'
run data=mnist -> mnist:
run data=mnist data.root=x -> mnist: x does not exist; fedchord data get mnist, or set FEDCHORD_DATA
run data.root=3 data=mnist -> mnist: 3 does not exist; fedchord data get mnist, or set FEDCHORD_DATA
run data.skip_damaged=true -> run: data.skip_damaged is for data of many files (isic, speechcommands,
run data.skip_damaged=maybe -> run: data.skip_damaged must be true or false, got 'maybe'
run augment=true -> run: augment is for isic, tinyimagenet, got data=digits
run augment=1 -> run: augment must be true or false, got 1
run average=2 -> run: average must be between 0 and 1, got 2
run average=x -> run: average must be a finite number, got 'x'
run average=0.5 method=local -> run: average is a mean of global models, and local has none
run central=maybe -> run: central must be true or false, got 'maybe'
run central=true method=ditto -> run: central trains one model for all: use fedavg or another method that
run choose=rows method=fedavg-ft -> choose: choose must be one of lambda, epochs, both, got 'rows'
run choose=lambda -> choose: is for methods with two ends (fedavg-ft, apfl, ditto, superfed-mm, ...), got fedavg
run choose=both method=ditto -> choose: both is for methods that train before use (fedavg-ft,
run choose.held=0.2 -> run: choose.held is given, but choose is not
run privacy=rooms privacy.noise=1 -> privacy: privacy must be one of clients, rows, got 'rooms'
run privacy=clients -> privacy: give privacy.epsilon, or privacy.noise (a multiple of the clip), got neither
run privacy=clients privacy.epsilon=1 privacy.noise=1 -> privacy: give privacy.epsilon, or privacy.noise
run privacy=clients privacy.epsilon=0 method=uniform -> privacy: privacy.epsilon must be above 0, got 0.0
run privacy=clients privacy.epsilon=-1 method=uniform -> privacy: privacy.epsilon must be above 0, got -1.0
run privacy=clients privacy.noise=-1 method=uniform -> privacy: privacy.noise must be at least 0, got -1.0
run privacy=clients privacy.epsilon=8 privacy.delta=1 method=uniform -> privacy: privacy.delta must be above 0 and
run privacy=clients privacy.epsilon=8 privacy.clip=0 method=uniform -> privacy: privacy.clip must be above 0, got 0.0
run privacy=clients privacy.epsilon=8 privacy.sampling=x method=uniform -> privacy: privacy.sampling must be one of
run privacy.epsilon=8 -> run: privacy.epsilon is given, but privacy is not (clients or rows)
run privacy=clients privacy.epsilon=8 -> privacy: fedavg cannot be private: weights follow the sizes of clients
run privacy=clients privacy.epsilon=8 method=q-fedavg -> privacy: q-fedavg cannot be private: weights follow losses
run privacy=clients privacy.epsilon=8 method=local -> privacy: local cannot be private: sends nothing, so there is
run privacy=rows privacy.epsilon=8 method=fedevg -> privacy: fedevg cannot be private: what it sends is no sum of
run privacy=rows privacy.epsilon=8 method=propfair-loss -> privacy: propfair-loss cannot be private: its objective
run privacy=rows privacy.epsilon=8 class_weights=true -> privacy: class_weights follow how many rows of a class
run privacy=clients privacy.noise=1 method=uniform central=true -> privacy: central has all rows in one place
run privacy=clients privacy.noise=1 method=fedavg-ft mixing=uniform choose=both -> privacy: choose adds up losses
run privacy=clients privacy.noise=1 method=uniform bound=median -> privacy: bound=median lets one client change how much
privacy list fedpox -> unknown method 'fedpox'; did you mean 'fedprox'?
privacy audit -> privacy: give privacy.epsilon, or privacy.noise (a multiple of the clip), got neither
privacy audit privacy.noise=1 --games 3 -> audit: games must be a whole number of at least 20, got 3
privacy reconstruct method=fedavg -> reconstruct: is for fedevg-witness, got Plain
run choose=lambda method=ditto choose.held=1 -> run: choose.held must lie between 0 and 1, got 1.0
run choose=epochs method=fedavg-ft choose.epochs=1,x -> run: choose.epochs must be numbers
run choose=epochs method=fedavg-ft choose.epochs=1.5 -> run: choose.epochs must be a whole number
advise method=ditto -> advise: method is what the pilots set or leave out
advise mixing=term -> advise: mixing is what the pilots set or leave out
advise data=none.csv -> data: none.csv: no such file
advise --seeds 1 -> advise: --seeds must be a whole number
advise rounds=0 -> run: rounds must be
run split=dirichelt -> unknown split 'dirichelt'; did you mean 'dirichlet'?
run split=dirichlet -> run: split=dirichlet needs split.alpha
run split=dirichlet split.alpha=0 -> Dirichlet: alpha must be above 0, got 0.0
run split=dirichlet split.alpha=-1 -> Dirichlet: alpha must be above 0, got -1.0
run split=dirichlet split.alpha=nan -> run: split.alpha must be a finite number, got nan
run split=dirichlet split.alpha=inf -> run: split.alpha must be a finite number, got inf
run split.alpha=1 -> run: split=pathological takes split.shards, got split.alpha
run split.shards=0 -> Pathological: shards must be a whole number of at least 1, got 0
run split.shards=1.5 -> run: split.shards must be a whole number, got 1.5
run split.minimum=3 -> run: split=pathological takes split.shards, got split.minimum
run split=natural -> Natural: the data have no client key to split by; name another split, such
run split=iid split.shards=2 -> run: split=iid takes no parameters, got split.shards
run clients=0 -> run: clients must be a whole number of at least 1, got 0
run clients=-3 -> run: clients must be a whole number of at least 1, got -3
run clients=2.5 -> run: clients must be a whole number of at least 1, got 2.5
run clients=many -> run: clients must be a whole number or all, got 'many'
run clients=all -> run: clients=all needs split=natural, got split=pathological
run clients=2000 -> Pathological: 2000 clients need at least 4000 rows, got 1797
run clients=1e9 -> Pathological: 1000000000 clients need at least 2000000000 rows, got 1797
run test=0 -> run: test must be above 0, got 0.0
run test=1 -> split: test must be at least 0 and below 1, got 1.0
run test=-0.1 -> split: test must be at least 0 and below 1, got -0.1
run test=nan -> run: test must be a finite number, got nan
run test=half -> run: test must be a finite number, got 'half'
run validation=0.9 -> split: test and validation must leave training rows, got 0.2 and 0.9
run validation=-1 -> split: validation must be at least 0 and below 1, got -1.0
run validation=1 -> split: validation must be at least 0 and below 1, got 1.0
run rounds=0 -> run: rounds must be a whole number of at least 1, got 0
run rounds=-1 -> run: rounds must be a whole number of at least 1, got -1
run rounds=2.5 -> run: rounds must be a whole number, got 2.5
run rounds=1e23 -> run: rounds must be at most 10000000, got 99999999999999991611392
run rounds=inf -> run: rounds must be a whole number, got inf
run rounds=nan -> run: rounds must be a whole number, got nan
run rounds=true -> run: rounds must be a whole number, got True
run rounds=ten -> run: rounds must be a whole number, got 'ten'
run rounds= -> run: rounds has no value; write rounds=VALUE
run rounds -> run: 'rounds' is not a setting; write key=value, for example rounds=50, or
run rounds=1 rounds=2 -> run: rounds is given twice
run rouds=3 -> unknown key 'rouds'; did you mean 'rounds'?
run --rounds 3 -> run: '--rounds' is not a setting; write key=value, for example rounds=50,
run --rounds=3 -> unknown key '--rounds'; did you mean 'rounds'?
run =3 -> unknown key ''
run cohort=0 -> run: cohort must be a whole number of at least 1, got 0
run cohort=-1 -> run: cohort must be a whole number of at least 1, got -1
run cohort=1.5 -> run: cohort as a share must be above 0 and at most 1, got 1.5
run cohort=0.0 -> run: cohort as a share must be above 0 and at most 1, got 0.0
run cohort=half -> run: cohort must be a number of clients, a share such as 0.25, or all, got
run cohort=21 -> run: cohort must be at most the number of clients, 20, got 21
run cohort=true -> run: cohort must be a number of clients, a share such as 0.25, or all, got
run cohort=1e23 -> run: cohort as a share must be above 0 and at most 1, got 1e+23
run seed=-1 -> run: seed must be a whole number of at least 0, got -1
run seed=1.5 -> run: seed must be a whole number, got 1.5
run seed=1e26 -> run: seed must be at most 9223372036854775807, got
run seed=x -> run: seed must be a whole number, got 'x'
run epochs=0 -> run: epochs must be a whole number of at least 1, got 0
run attack=sign-flp -> unknown attack 'sign-flp'; did you mean 'sign-flip'?
run attack=noise attack.share=1.2 -> run: attack.share must be at least 0 and below 1, got 1.2
run attack=lying -> run: attack=lying needs a mixing rule that asks for losses
run mixing=krum mixing.hostile=0.4 -> Krum: hostile=0.4 of a cohort of 5 is f = 2, which needs 2 f + 3 = 7 clients
run method=aaggff-d combine=median -> run: combine=median has no place for weights, and AAggFFDevice makes some
run bound=0 -> run: bound must be above 0, got 0
run epochs=-1 -> Training: epochs must be a whole number of at least 0, got -1
run epochs=1e30 -> Training: epochs must be at most 1000000, got
run epochs=0.5 -> run: epochs must be a whole number, got 0.5
run batch=-1 -> Training: batch must be a whole number of at least 0, got -1
run batch=2.5 -> run: batch must be a whole number, got 2.5
run batch=1e30 -> Training: batch must be at most 9223372036854775807, got
run lr=0 -> Training: lr must be above 0, got 0.0
run lr=-1 -> Training: lr must be above 0, got -1.0
run lr=nan -> run: lr must be a finite number, got nan
run lr=inf -> run: lr must be a finite number, got inf
run lr=fast -> run: lr must be a finite number, got 'fast'
run momentum=1 -> Training: momentum must be at least 0 and below 1, got 1.0
run momentum=-0.1 -> Training: momentum must be at least 0 and below 1, got -0.1
run weight_decay=-1 -> Training: weight_decay must be at least 0, got -1.0
run lr_decay=0 -> Training: lr_decay must be above 0, got 0.0
run lr_step=0 -> Training: lr_step must be a whole number of at least 1, got 0
run clip=-1 -> Training: clip must be at least 0, got -1.0
run optimiser=lion -> Training: optimiser must be one of sgd, adam, got 'lion'
run executor=fast -> run: executor must be one of auto, processes, ranks, serial, vectorised, got
run workers=0 -> run: workers must be a whole number of at least 1, got 0
run workers=-1 -> run: workers must be a whole number of at least 1, got -1
run workers=100000 -> run: workers must be at most 1024, got 100000
run workers=2.5 -> run: workers must be a whole number, got 2.5
run device=tpu -> run: device must be auto, cpu or cuda, got 'tpu'
run device=cuda:x -> run: device must be auto, cpu or cuda, got 'cuda:x'
run eval_every=-1 -> run: eval_every must be a whole number of at least 0, got -1
run eval_every=1e30 -> run: eval_every must be at most 9223372036854775807, got
run checkpoint_every=-1 -> run: checkpoint_every must be a whole number of at least 0, got -1
run checkpoint_every=x -> run: checkpoint_every must be a whole number, got 'x'
run log=tensorboard -> run: log=tensorboard writes into the run's folder; add out=FOLDER
run log=tensorbord -> unknown logger 'tensorbord'; did you mean 'tensorboard'?
run log=none.py:Log -> log: none.py: no such file
run log=../in/my.py -> log=../in/my.py: name what is in the file, such as log=../in/my.py:Log
run log=3 -> run: log must be names such as tensorboard,my_log.py:Log, got 3
run noise=pair -> run: noise.rate is needed with noise=pair
run noise=loud noise.rate=0.1 -> unknown noise 'loud'
run noise.rate=0.2 -> run: noise.rate is 0.2, but noise is not chosen (pair or symmetric)
run noise=pair noise.rate=2 -> run: noise.rate must be between 0 and 1, got 2.0
run newcomers=-1 -> run: newcomers must be a whole number of at least 0, got -1
run newcomers=20 -> run: newcomers must be fewer than the 20 clients, so that some can train,
run newcomers=1.5 -> run: newcomers as a share must be at least 0 and below 1, got 1.5
run newcomers=many -> run: newcomers must be a number of clients or a share such as 0.1, got
run newcomer_epochs=2 -> run: newcomer_epochs is given, but there are no newcomers
run newcomers=2 newcomer_epochs=-1 -> run: newcomer_epochs must be a whole number of at least 0, got -1
run class_weights=3 -> run: class_weights must be true or false, got 3
run synthetic=none.npz -> synthetic: none.npz: no such file
run synthetic.add=all -> run: synthetic.add is given, but no synthetic set is
run synthetic.least=3 -> run: synthetic.least is given, but no synthetic set is
run judge=twonn -> run: judge needs a method that ends with samples, got fedavg
run judge.steps=5 -> run: judge.steps needs a method that ends with samples, got fedavg
run judge.privacy=true -> run: judge.privacy needs a method that ends with samples, got fedavg
run method=fedevg judge.features=magic -> unknown features 'magic'
run method=fedevg judge.steps=0 -> Judge: steps must be a whole number of at least 1, got 0
run method=fedevg model=cvae -> run: model=cvae is for fedcvae, got method=fedevg
run method=fedevg newcomers=2 -> run: newcomers need a method that ends with a model, got fedevg
run sweep.lambdas=0,2 -> sweep.lambdas: every lambda must lie between 0 and 1, got 2.0
run sweep.lambdas=1,0 -> sweep.lambdas: every lambda must be above the one before, got (1.0, 0.0)
run sweep.lambdas=a -> run: sweep.lambdas must be numbers such as 0,0.25,0.5,0.75,1, got 'a'
run method=fedprox method.mu=-1 -> Prox: mu must be at least 0, got -1
run method=fedprox method.mu=x -> Prox: mu must be a finite number, got 'x'
run method=fedprox method.nu=1 -> unknown parameter of fedprox 'method.nu'; did you mean 'method.mu'?
run method.mu=1 -> unknown parameter of fedavg 'method.mu'; did you mean 'method.lr'?
run method=fedprox method.mu=1e400 -> Prox: mu must be a finite number, got inf
run mixing=q-fedavg mixing.q=-1 -> QFedAvg: q must be at least 0, got -1
run server=fedadam server.lr=0 -> Adam: lr must be above 0, got 0
run server.beta=3 -> unknown parameter of Step 'server.beta'; did you mean 'server.lr'?
run method=local mixing=q-fedavg -> Algorithm: QFedAvg compares what clients send and cannot be used with
run out=../in/FILE -> out: ../in/FILE is a file, not a folder
run out=../in -> out: ../in is no run folder and not empty
run out=../in/FILE/a -> out: ../in/FILE/a cannot be written (../in/FILE is a file)
run none.toml -> none.toml: no such file
run a.toml b.toml -> run: one settings file is enough, got a.toml and b.toml
run ../in/bad.toml -> ../in/bad.toml: is not valid TOML: Invalid value (at end of document)
run ../in/FILE -> run: '../in/FILE' is not a setting; write key=value, for example
run data=../in/nan.csv -> nan.csv: client is missing at line 5, got ''
run data=../in/nan.npz -> nan: client is missing at row 3, got 'nan'
run data=../in/empty.csv -> empty.csv: client is missing at line 5, got ''
run data=../in/obj.npz -> obj.npz: is not a readable .npz file of plain arrays (it holds Python objects
run data=../in/one.csv -> one: no client has test rows; clients need two rows or more
run data=../in/few.csv cohort=4 -> run: cohort must be at most the number of clients, 3, got 4
run data=../in/few.csv split=pathological clients=90 -> Pathological: 90 clients need at least 180 rows, got 30
run data=../in/words.csv -> Pathological: 20 clients need at least 40 rows, got 2
run data=../in/nolabel.csv -> unknown column of nolabel.csv 'label'
run data=../in/header.csv -> header.csv: data have no rows
run data=../in/zero.csv -> zero.csv: is empty; a header line was expected
run data=../in/broken.npz -> broken.npz: is not a readable .npz file of plain arrays (File is not a zip file)
resume -> Missing argument 'FOLDER'; see fedchord resume --help
resume runs/a -> runs/a: no such folder
resume . -> .: has no config.toml, so it holds no run
resume ../in/FILE -> ../in/FILE: no such folder
resume runs/a rounds -> runs/a: no such folder
export -> Missing argument 'RUN'; see fedchord export --help
export runs/a -> runs/a: no such folder
export . -> .: has no config.toml, so it holds no run
export . --to model.bin -> export: a file must end in .pt or .safetensors, and a folder has no suffix,
export . --to a.onnx --format onnx -> export: a file must end in .pt or .safetensors, and a folder has no suffix
export . --to ../in/FILE/x.pt -> export: ../in/FILE/x.pt cannot be written (../in/FILE is a file)
export ../in/FILE -> ../in/FILE: no such folder
export runs/a --client x -> runs/a: no such folder
export runs/a --format word -> export: format must be one of torch, onnx, got 'word'
export runs/a --format onnx --to x.pt -> export: --format onnx writes a folder, got the file 'x.pt'
export runs/a --replac -> No such option: --replac Did you mean --replace?; see fedchord export --help
export . x -> Got unexpected extra argument (x); see fedchord export --help
table -> Missing argument 'RUN...'; see fedchord table --help
table runs/a -> runs/a: no such run folder
table . -> no finished run here (.: not a run folder (it has no config.toml))
table ../in/FILE -> no run folder here
table runs/* --format word -> table: format must be one of rich, markdown, latex, csv, got 'word'
table . --scale big -> no finished run here (.: not a run folder (it has no config.toml))
table . --spread x -> no finished run here (.: not a run folder (it has no config.toml))
compare -> Missing argument 'RUN...'; see fedchord compare --help
compare . --against x -> no finished run here (.: not a run folder (it has no config.toml))
compare runs/a -> compare: over clients it needs --against LABEL_or_RUN
compare . --bootstrap cats -> compare: bootstrap must be one of clients, seeds, both, samples, got 'cats'
compare . --against a --format word -> compare: format must be one of rich, markdown, latex, csv, got 'word'
plot -> Missing argument 'RUN...'; see fedchord plot --help
plot curves -> curves: no such run folder
plot curves runs/a -> curves: no such run folder
plot pie . -> pie: no such run folder
plot curves . --to a.gif -> plot: the file must end in .png, .pdf, .svg, got 'a.gif'
figure -> Missing argument 'NAME'; see fedchord figure --help
figure nothing -> unknown figure 'nothing'
figure nothing --to x.png -> unknown figure 'nothing'
list frob -> unknown list 'frob'
list --root x -> No such option: --root; see fedchord list --help
list a b -> Got unexpected extra argument (b); see fedchord list --help
demo --out ../in/FILE -> demo: ../in/FILE/demo.png cannot be written (../in/FILE is a file)
demo --out ../in/FILE/x -> demo: ../in/FILE/x/demo.png cannot be written (../in/FILE is a file)
demo --rounds 3 -> No such option: --rounds Did you mean --out?; see fedchord demo --help
data frob -> No such command 'frob'; see fedchord data --help
data list --root nothere -> data: --root nothere is no folder
data list --root ../in/FILE -> data: --root ../in/FILE is no folder
data check minst -> unknown data set 'minst'; did you mean 'mnist'?
data check --root nothere -> data: --root nothere is no folder
data get minst -> unknown data set 'minst'; did you mean 'mnist'?
data get -> Missing argument 'NAME'; see fedchord data get --help
data get mnist --root ../in/FILE -> data: --root ../in/FILE is no folder
data show -> Missing argument 'NAME'; see fedchord data show --help
data show mnist -> mnist:
data show mnits -> unknown data set 'mnits'; did you mean 'mnist'?
data show digits clients=0 -> run: clients must be a whole number of at least 1, got 0
data show digits --clients 5 -> run: '--clients' is not a setting; settings are key=value, for example
data show digits --picture a.gif -> data: the picture must end in .png or .pdf or .svg, got 'a.gif'
data show none.csv -> data: none.csv: no such file
data table --format word -> data table: format must be one of rich, markdown, latex, csv, got 'word'
data table mnits -> unknown data set 'mnits'; did you mean 'mnist'?
data table --root nothere -> data: --root nothere is no folder
data caches --root nothere -> data: --root nothere is no folder
study frob -> No such command 'frob'; see fedchord study --help
study run -> Missing argument 'FILE_or_NAME'; see fedchord study run --help
study run nothing -> unknown study 'nothing'
study run none.toml -> none.toml: no such file
study run ../in/bad.toml -> ../in/bad.toml: is not valid TOML: Invalid value (at end of document)
study run smoke rounds=0 -> study smoke, Local, two classes each: run: rounds must be a whole number
study run smoke method=fedavg -> study smoke: method= cannot be set here: a study has its own methods; pick
study run smoke out=a -> study smoke: out= cannot be set here: use --out DIR
study run smoke --scale huge -> unknown scale of study smoke 'huge' (known: small, smoke)
study run smoke --only nobody -> unknown row or column of study smoke 'nobody'
study run smoke seeds=x -> study smoke: seeds must be like 1,2,3, got 'x'
study run smoke seeds=1-1000000000 -> study smoke: seeds must be at most 100,000, got 1,000,000,000
study run smoke seeds= -> run: seeds has no value; write seeds=VALUE
study run smoke --out ../in/FILE -> out: ../in/FILE cannot be written (../in/FILE is a file)
study table -> Missing argument 'FILE_or_NAME'; see fedchord study table --help
study table smoke -> study table: no finished run in runs/smoke; run it with: fedchord study
study table smoke --format word -> study table: format must be one of rich, markdown, latex, csv, got 'word'
study table nothing -> unknown study 'nothing'
study table smoke --only nobody -> unknown row or column of study smoke 'nobody'
synth frob -> No such command 'frob'; see fedchord synth --help
synth show -> Missing argument 'RUN...'; see fedchord synth show --help
synth show runs/a -> runs/a: no such run folder
synth show . -> .: has no config.toml, so it holds no run
synth export runs/a -> synthetic: runs/a: no such file
synth export . -> synthetic: . has no synthetic.npz: it holds no finished run of a method
synth export ../in/FILE -> synthetic: ../in/FILE is not a readable .npz file of plain arrays
synth train runs/a -> synthetic: runs/a: no such file
synth train none.npz -> synthetic: none.npz: no such file
synth quality . -> .: has no config.toml, so it holds no run
synth quality . --features magic -> unknown features 'magic'
synth privacy . -> .: has no config.toml, so it holds no run
new frob -> No such command 'frob'; see fedchord new --help
new method -> Missing argument 'NAME'; see fedchord new method --help
new method 3x -> new method: a name is made of small letters, digits and hyphens, starting
new method class -> new method: class would hide Python's class; choose another name
sweep -> sweep: there is nothing to choose between; give a key several values, such as lr=0.1,0.03
sweep lr=0.1 rounds=3 -> sweep: there is nothing to choose between; give a key several values, such as
sweep seed=1,2,3 -> sweep: seeds are repeats, not choices; give another key several values, such as
sweep lr= -> sweep: lr has no value; write lr=VALUE
sweep lr=0.1, -> sweep: lr has an empty value in '0.1,'
sweep lr=,0.1 -> sweep: lr has an empty value in ',0.1'
sweep lr=0.1,0.2 lr=0.3,0.4 -> sweep: lr is given twice
sweep lr=0.1,0.10 -> sweep: lr has the value 0.1 twice
sweep method=fedavg,fedavg -> sweep: method has the value fedavg twice
sweep epochs=1,1.0 -> sweep: fedavg epochs=1 and fedavg epochs=1.0 are the same run; give each value once
sweep lr=0.1,0 -> sweep, fedavg lr=0: Training: lr must be above 0, got 0.0
sweep lr=0.1,fast -> sweep, fedavg lr=fast: run: lr must be a finite number, got 'fast'
sweep lr=0.1,0.2 rounds=0 -> sweep, fedavg lr=0.1: run: rounds must be a whole number of at least 1, got 0
sweep rouds=3,4 -> unknown key 'rouds'; did you mean 'rounds'?
sweep lr=0.1,0.2 seeds=1,2 -> unknown key 'seeds'; did you mean 'seed'?
sweep lr=0.1,0.2 seed=1,1 -> sweep: seeds must be different whole numbers, got [1, 1]
sweep lr=0.1,0.2 seed=x -> sweep: seeds must be like 1,2,3, got 'x'
sweep lr=0.1,0.2 validation=0 -> sweep: validation=0 leaves only test rows to choose on, which is what a sweep is
sweep lr=0.1,0.2 validation=0.0,0.1 -> sweep: validation=0 leaves only test rows to choose on, which is
sweep lr=0.1,0.2 validation=0.9 -> sweep, fedavg lr=0.1: split: test and validation must leave training rows
sweep lr=0.1,0.2 out=a -> sweep: out= cannot be set here: use --out FOLDER
sweep executor=serial,processes -> sweep: executor does not change the result; give it one value
sweep lr=0.1,0.2 eval_every=1,2 -> sweep: eval_every does not change the result; give it one value
sweep method=fedpox,fedavg -> unknown method 'fedpox'; did you mean 'fedprox'?
sweep method=fedavg,scaffold method.mu=0.1,1 -> unknown parameter of fedavg 'method.mu'
sweep method=fedprox method.mu=0.1,-1 -> sweep, fedprox method.mu=-1: Prox: mu must be at least 0, got -1
sweep mixing=unifrm,by-size -> unknown mixing rule 'unifrm'; did you mean 'uniform'?
sweep lr=0.1,0.2,0.3 seed=1-400 -> sweep: 1,200 runs; if you mean it, add --yes (--dry-run lists them)
sweep lr=0.1,0.2 seed=1-100000 --yes -> sweep: 200,000 runs are more than the 100,000 that it takes
sweep lr=0.1,0.2 seed=1-1000000000 --yes -> sweep: seeds must be at most 100,000, got 1,000,000,000
sweep lr=0.1,0.2 --metric topp1 -> unknown metric 'topp1'; did you mean 'top1'?
sweep lr=0.1,0.2 --metric kappa -> sweep: kappa is not measured in these runs (top1, top5, loss, ece, mce); add
sweep lr=0.1,0.2 --out ../in/FILE -> out: ../in/FILE cannot be written (../in/FILE is a file)
sweep lr=0.1,0.2 --rounds 3 -> sweep: '--rounds' is not a setting; settings are key=value, for example lr=0.1,0.03
sweep a.toml lr=0.1,0.2 -> sweep: 'a.toml' is not a setting; settings are key=value, for example lr=0.1,0.03
sweep lr=0.1,0.2 data=mnist -> mnist:
sweep lr=0.1,0.2 data=../in/one.csv --dry-run data=digits -> sweep: data is given twice
sweep lr=0.1,0.2 data=../in/two.csv -> sweep: no client has validation rows; give a larger share, such as
new method my-rule --to ../in/FILE -> new method: ../in/FILE/my-rule cannot be written (../in/FILE is a file)
new method my-rule --to /proc/none -> /proc/none/my-rule cannot be written
new mixing -> Missing argument 'NAME'; see fedchord new mixing --help
new mixing uniform -> new mixing: uniform is a mixing already; choose another name
new server step -> new server: step is a server already; choose another name
new server A -> new server: a name is made of small letters, digits and hyphens, starting
new model encoder -> new model: encoder is a model already; choose another name
new model torch -> new model: torch would hide Python's torch; choose another name
frob -> No such command 'frob'; see fedchord --help
--frob -> No such option: --frob; see fedchord --help
resume ../in/run method=fedprox -> resume: method cannot be changed when a run goes on
resume ../in/run rounds=0 -> run: rounds must be a whole number of at least 1, got 0
resume ../in/run rounds=1.5 -> run: rounds must be a whole number, got 1.5
resume ../in/two rounds=1 -> resume: ../in/two has done 2 rounds; rounds must be at least that, got 1
resume ../in/two rounds=9 -> resume: superfed-mm starts to mix at a share of all rounds (method.warmup); a longer run is
resume ../in/two rounds=2 method.start_round=1 -> resume: method.start_round cannot be changed
resume ../in/run rounds=9 lr=1 -> resume: lr cannot be changed when a run goes on
resume ../in/run seed=1 -> resume: seed cannot be changed
resume ../in/run out=b -> resume: out cannot be changed
resume ../in/run frob=1 -> unknown key 'frob'
resume ../in/run device=tpu -> run: device must be auto, cpu or cuda
run out=../in/run -> ../in/run already holds another run, finished
export ../in/run --client 99 -> unknown client '99' (known: 0, 1, 2, 3, 4, 5)
export ../in/run --client -1 -> unknown client '-1'
export ../in/run --client three -> unknown client 'three'
export ../in/run --to ../in/FILE -> export: ../in/FILE cannot be written (../in/FILE is a file)
export ../in/run --to ../in/FILE/x -> export: ../in/FILE/x cannot be written (../in/FILE is a file)
export ../in/run --to ../in -> export: ../in is not empty and no earlier export
export ../in/run --to ../in --replace -> export: ../in is not empty and no earlier export
export ../in/run --to ../in/run -> export: ../in/run is not empty and no earlier export
export ../in/run --to ../in/run --replace -> export: ../in/run is not empty and no earlier export
export ../in/run --to /proc/none -> /proc/none cannot be written
export ../in/begun -> ../in/begun: has no checkpoint yet
export ../in/local -> export: local has no shared model; name a client
export ../in/per --to x.pt -> export: fedper shares only a part of the model; name a client
export ../in/evg -> export: fedevg ends with samples, not with a model; write fedchord synth export ../in/evg
export ../in/evg --client 0 -> export: fedevg ends with samples, not with a model; write fedchord synth export
export ../in/gone -> model: net.py: no such file
export ../in/run --to ../in/FILE/x.pt -> export: ../in/FILE/x.pt cannot be written (../in/FILE is a file)
export ../in/run --to /proc/none/x.pt -> /proc/none/x.pt cannot be written
table ../in/run --metric frob -> unknown metric of these runs 'frob'
table ../in/run --column frob -> unknown column 'frob'
table ../in/run --scale big -> table: scale must be one of percent, raw, got 'big'
table ../in/run --spread x -> table: spread must be one of seeds, clients, got 'x'
compare ../in/run --against frob -> compare: there is no run of 'frob' on the federation of ../in/run
compare ../in/run --against fedavg --metric frob -> compare: there is nothing to compare with fedavg
compare ../in/run --against fedavg --column frob -> compare: column must be one of deployed, swept, validated
plot ../in/run --metric frob -> unknown metric of these runs 'frob'
plot ../in/run --kind pie -> plot: kind must be one of curves, clients, shares, got 'pie'
plot ../in/run --to a.gif -> plot: the file must end in .png, .pdf, .svg, got 'a.gif'
synth show ../in/run -> synthetic: ../in/run has no synthetic.npz
synth export ../in/run -> synthetic: ../in/run has no synthetic.npz
synth privacy ../in/run -> synthetic: ../in/run has no synthetic.npz
"""
"""What is typed, and how the answer begins. ../in holds the files that `given` makes."""

COMMANDS = dict(line.split(" -> ") for line in BAD.strip().splitlines())


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A folder with files that cannot be used, and small runs, finished or only begun."""
    folder = tmp_path_factory.mktemp("bad")
    rows = {
        "nan": [(i, "nan" if i == 3 else i % 3) for i in range(30)],
        "empty": [(i, "" if i == 3 else i % 3) for i in range(30)],
        "one": [(i, i) for i in range(30)],
        "two": [(i, i // 2) for i in range(30)],
        "few": [(i, i % 3) for i in range(30)],
    }
    texts = {f"{name}.csv": _csv(pairs) for name, pairs in rows.items()}
    texts |= {"words.csv": "a,label\nx,1\ny,0\n", "nolabel.csv": "a,b\n1,1\n", "header.csv": "a,label\n"}
    texts |= {"zero.csv": "", "broken.npz": "PK broken", "bad.toml": "rounds = [", "FILE": "mine"}
    for name, text in texts.items():
        (folder / name).write_text(text)
    x, y = np.zeros((30, 2)), np.arange(30) % 2
    np.savez(folder / "nan.npz", x=x, y=y, client=np.where(np.arange(30) == 3, np.nan, y))
    np.savez(folder / "obj.npz", x=np.array([None] * 30), y=y)
    begun = {"begun": 'method = "fedavg"', "local": 'method = "local"', "evg": 'method = "fedevg"'}
    for name, line in (begun | {"gone": 'model = "net.py:make"'}).items():  # settings, and no round yet
        (folder / name).mkdir()
        (folder / name / "config.toml").write_text(f"{line}\n")
    runs = {"run": ["rounds=1"], "two": ["rounds=2", "method=superfed-mm"], "per": ["rounds=1", "method=fedper"]}
    for name, more in runs.items():
        model = "twonn" if name == "per" else "logreg"
        with pytest.raises(SystemExit) as ended:
            main(["run", f"model={model}", "clients=6", "executor=serial", f"out={folder / name}", *more])
        assert not ended.value.code
    return folder


def _csv(pairs) -> str:
    return "a,label,client\n" + "".join(f"{i},{i % 2},{client}\n" for i, client in pairs)


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_there_are_enough_of_them():
    assert len(COMMANDS) >= 150


@pytest.mark.parametrize("command", COMMANDS)
def test_a_bad_command_is_one_line(command, given, tmp_path, monkeypatch, capsys):
    here, files = tmp_path / "here", tmp_path / "in"
    here.mkdir()
    shutil.copytree(given, files)
    monkeypatch.chdir(here)
    monkeypatch.setenv("FEDCHORD_DATA", str(tmp_path / "nowhere"))
    before = _content(files)
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith(f"error: {COMMANDS[command]}") and err.count("\n") == 1 and err.endswith("\n")
    assert list(here.iterdir()) == [] and sorted(path.name for path in tmp_path.iterdir()) == ["here", "in"]
    assert _content(files) == before
