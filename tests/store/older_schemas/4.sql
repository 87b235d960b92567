BEGIN TRANSACTION;
CREATE TABLE chunks (
	evaluation_id INTEGER NOT NULL,
	start INTEGER NOT NULL,
	stop INTEGER NOT NULL,
	seconds DOUBLE NOT NULL,
	device VARCHAR(64) NOT NULL,
	bad_rows JSON NOT NULL,
	weights_sha256 VARCHAR(64),
	content VARCHAR(64),
	PRIMARY KEY (evaluation_id, start),
	FOREIGN KEY(evaluation_id) REFERENCES evaluations (id) ON DELETE CASCADE
);
INSERT INTO "chunks" VALUES(3,0,2,0.5,'cpu','[]','wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww','cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc');
CREATE TABLE estimates (
	evaluation_id INTEGER NOT NULL,
	method VARCHAR(64) NOT NULL,
	source VARCHAR(255) NOT NULL,
	fit VARCHAR(255) NOT NULL,
	assumes VARCHAR(255) NOT NULL,
	set_group VARCHAR(255) NOT NULL,
	value DOUBLE,
	accuracy DOUBLE,
	extrapolates BOOLEAN,
	r2 DOUBLE,
	notes JSON NOT NULL,
	made_at VARCHAR(32) NOT NULL,
	PRIMARY KEY (evaluation_id, method, source, fit, assumes),
	FOREIGN KEY(evaluation_id) REFERENCES evaluations (id) ON DELETE CASCADE
);
INSERT INTO "estimates" VALUES(1,'doc','s','','','',61.5,50.0,0,NULL,'[]','2026-11-01T12:00:00+00:00');
CREATE TABLE eval_settings (
	id INTEGER NOT NULL,
	name VARCHAR(255) NOT NULL,
	version INTEGER NOT NULL,
	size INTEGER,
	dataset TEXT,
	logits_from VARCHAR(255),
	images_from VARCHAR(255),
	parent VARCHAR(255),
	tags JSON NOT NULL,
	created_at VARCHAR(32) NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (name, version)
);
INSERT INTO "eval_settings" VALUES(1,'s',1,6,'folder',NULL,NULL,NULL,'[]','2026-11-01T12:00:00+00:00');
INSERT INTO "eval_settings" VALUES(2,'even',1,3,NULL,'s',NULL,NULL,'[]','2026-11-01T12:00:00+00:00');
CREATE TABLE evaluations (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	model_id INTEGER NOT NULL,
	eval_setting_id INTEGER NOT NULL,
	variant VARCHAR(64) NOT NULL,
	source VARCHAR(64) NOT NULL,
	complete BOOLEAN NOT NULL,
	status VARCHAR(16) NOT NULL,
	run_id VARCHAR(32),
	error TEXT,
	warning TEXT,
	n_images INTEGER NOT NULL,
	n_bad INTEGER NOT NULL,
	chunk_size INTEGER,
	logits_path TEXT,
	logits_sha256 VARCHAR(64),
	logits_bytes BIGINT,
	samples_path TEXT,
	derived_from_id INTEGER,
	weights_sha256 VARCHAR(64),
	dataset_fingerprint VARCHAR(64),
	device VARCHAR(64),
	dtype VARCHAR(16),
	seed INTEGER,
	seconds DOUBLE,
	images_per_second DOUBLE,
	provenance JSON,
	created_at VARCHAR(32) NOT NULL,
	finished_at VARCHAR(32),
	UNIQUE (model_id, eval_setting_id, variant, source, complete),
	FOREIGN KEY(model_id) REFERENCES models (id) ON DELETE CASCADE,
	FOREIGN KEY(eval_setting_id) REFERENCES eval_settings (id) ON DELETE CASCADE,
	FOREIGN KEY(run_id) REFERENCES runs (id),
	FOREIGN KEY(derived_from_id) REFERENCES evaluations (id) ON DELETE CASCADE
);
INSERT INTO "evaluations" VALUES(1,1,1,'','own',1,'completed','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',NULL,NULL,6,0,2,'logits/s/m-1.npy','5555555555555555555555555555555555555555555555555555555555555555',176,'logits/s/samples-6.npz',NULL,'wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww','ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff','cpu','float32',0,1.5,4.0,'{"seed": 0}','2026-11-01T12:00:00+00:00','2026-11-01T12:00:00+00:00');
INSERT INTO "evaluations" VALUES(2,1,2,'','own',1,'completed','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',NULL,NULL,3,0,2,NULL,NULL,NULL,NULL,1,'wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww','ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff','cpu','float32',0,NULL,NULL,NULL,'2026-11-01T12:00:00+00:00','2026-11-01T12:00:00+00:00');
INSERT INTO "evaluations" VALUES(3,2,1,'','own',0,'running','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',NULL,NULL,6,0,2,'logits/s/n-3.npy',NULL,NULL,NULL,NULL,'wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww','ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff','cpu','float32',0,NULL,NULL,NULL,'2026-11-01T12:00:00+00:00',NULL);
CREATE TABLE metrics (
	evaluation_id INTEGER NOT NULL,
	name VARCHAR(128) NOT NULL,
	position INTEGER NOT NULL,
	value DOUBLE,
	ci_low DOUBLE,
	ci_high DOUBLE,
	n INTEGER,
	unit VARCHAR(32),
	better VARCHAR(8),
	lowest DOUBLE,
	highest DOUBLE,
	PRIMARY KEY (evaluation_id, name),
	FOREIGN KEY(evaluation_id) REFERENCES evaluations (id) ON DELETE CASCADE
);
INSERT INTO "metrics" VALUES(1,'top1',0,50.0,49.0,51.0,6,'%','higher',0.0,100.0);
INSERT INTO "metrics" VALUES(2,'top1',0,66.5,65.5,67.5,3,'%','higher',0.0,100.0);
CREATE TABLE models (
	id INTEGER NOT NULL,
	name VARCHAR(255) NOT NULL,
	arch VARCHAR(255),
	tags JSON NOT NULL,
	created_at VARCHAR(32) NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (name)
);
INSERT INTO "models" VALUES(1,'m','resnet','[]','2026-11-01T12:00:00+00:00');
INSERT INTO "models" VALUES(2,'n','resnet','[]','2026-11-01T12:00:00+00:00');
CREATE TABLE runs (
	id VARCHAR(32) NOT NULL,
	host VARCHAR(255) NOT NULL,
	pid INTEGER NOT NULL,
	command TEXT NOT NULL,
	started_at VARCHAR(32) NOT NULL,
	heartbeat_at DOUBLE NOT NULL,
	ended_at VARCHAR(32),
	PRIMARY KEY (id)
);
INSERT INTO "runs" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','here',4242,'eval.py --models m --eval-settings s','2026-11-01T12:00:00+00:00',1793534400.25,'2026-11-01T12:00:00+00:00');
CREATE TABLE schema_version (
	version INTEGER NOT NULL
);
INSERT INTO "schema_version" VALUES(4);
CREATE INDEX evaluations_by_setting ON evaluations (eval_setting_id, variant, source, complete, model_id);
CREATE INDEX ix_evaluations_derived_from_id ON evaluations (derived_from_id);
CREATE VIEW results AS
SELECT m.name AS model, s.name AS eval_setting, x.name AS metric,
       x.value AS value, x.ci_low AS ci_low, x.ci_high AS ci_high, x.n AS n,
       x.unit AS unit, x.better AS better, x.lowest AS lowest, x.highest AS highest
FROM metrics x JOIN evaluations e ON e.id = x.evaluation_id
JOIN models m ON m.id = e.model_id
JOIN eval_settings s ON s.id = e.eval_setting_id
WHERE e.complete AND e.variant = '' AND e.source = 'own' AND CASE WHEN EXISTS (
    SELECT 1 FROM eval_settings t JOIN evaluations f ON f.eval_setting_id = t.id
    WHERE t.name = s.name AND t.version > s.version AND f.variant = e.variant AND f.source = e.source AND f.complete
) THEN 1 ELSE 0 END = 0;
CREATE VIEW all_results AS
SELECT m.name AS model, s.name AS eval_setting, x.name AS metric,
       x.value AS value, x.ci_low AS ci_low, x.ci_high AS ci_high, x.n AS n,
       x.unit AS unit, x.better AS better, x.lowest AS lowest, x.highest AS highest, e.variant AS variant, s.version AS version, e.source AS source,
       CASE WHEN EXISTS (
    SELECT 1 FROM eval_settings t JOIN evaluations f ON f.eval_setting_id = t.id
    WHERE t.name = s.name AND t.version > s.version AND f.variant = e.variant AND f.source = e.source AND f.complete
) THEN 1 ELSE 0 END AS superseded, CASE WHEN e.source = 'own' THEN 0 WHEN EXISTS (
    SELECT 1 FROM eval_settings t JOIN evaluations f ON f.eval_setting_id = t.id
    WHERE t.name = s.name AND f.variant = e.variant AND f.source = 'own' AND f.complete AND f.model_id = e.model_id
) THEN 1 ELSE 0 END AS shadowed, x.position AS position, e.id AS evaluation_id, e.finished_at AS finished_at
FROM metrics x JOIN evaluations e ON e.id = x.evaluation_id
JOIN models m ON m.id = e.model_id
JOIN eval_settings s ON s.id = e.eval_setting_id
WHERE e.complete;
CREATE VIEW all_evaluations AS
SELECT e.id AS id, m.name AS model, s.name AS eval_setting, e.variant AS variant, s.version AS version, e.source AS source,
       CASE WHEN EXISTS (
    SELECT 1 FROM eval_settings t JOIN evaluations f ON f.eval_setting_id = t.id
    WHERE t.name = s.name AND t.version > s.version AND f.variant = e.variant AND f.source = e.source AND f.complete
) THEN 1 ELSE 0 END AS superseded, CASE WHEN e.source = 'own' THEN 0 WHEN EXISTS (
    SELECT 1 FROM eval_settings t JOIN evaluations f ON f.eval_setting_id = t.id
    WHERE t.name = s.name AND f.variant = e.variant AND f.source = 'own' AND f.complete AND f.model_id = e.model_id
) THEN 1 ELSE 0 END AS shadowed, e.status AS status, e.complete AS complete,
       e.error AS error, e.warning AS warning, e.n_images AS n_images, e.n_bad AS n_bad, e.run_id AS run_id,
       e.logits_path AS logits_path, e.logits_sha256 AS logits_sha256, e.logits_bytes AS logits_bytes,
       e.samples_path AS samples_path, e.derived_from_id AS derived_from_id,
       e.weights_sha256 AS weights_sha256, e.dataset_fingerprint AS dataset_fingerprint,
       e.device AS device, e.dtype AS dtype, e.seed AS seed, e.seconds AS seconds,
       e.images_per_second AS images_per_second, e.created_at AS created_at, e.finished_at AS finished_at,
       e.provenance AS provenance
FROM evaluations e
JOIN models m ON m.id = e.model_id
JOIN eval_settings s ON s.id = e.eval_setting_id;
CREATE VIEW label_free AS
SELECT m.name AS model, s.name AS eval_setting, x.set_group AS set_group, x.method AS method, x.value AS estimate,
       x.accuracy AS accuracy, x.source AS source, x.fit AS fit, x.assumes AS assumes,
       x.extrapolates AS extrapolates, x.r2 AS r2, e.variant AS variant
FROM estimates x JOIN evaluations e ON e.id = x.evaluation_id
JOIN models m ON m.id = e.model_id
JOIN eval_settings s ON s.id = e.eval_setting_id
WHERE e.complete;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('evaluations',3);
COMMIT;
